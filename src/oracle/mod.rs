//! placeholder, replaced in the following commits
