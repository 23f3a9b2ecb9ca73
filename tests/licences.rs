//! Every crate in the dependency tree can be used under a permissive licence.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::process::Command;

/// Licences whose terms this crate can meet by naming them.
const ALLOWED: [&str; 9] =
    ["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "Unicode-3.0", "CC0-1.0", "Unlicense"];

#[test]
fn every_dependency_has_a_permissive_licence() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "{} packages", packages.len());

    let refused: Vec<_> = packages
        .iter()
        .filter_map(|package| {
            let licence = package["license"].as_str().unwrap_or("none stated");
            (!permissive(licence)).then(|| format!("{} {}: {licence}", package["name"], package["version"]))
        })
        .collect();
    assert!(refused.is_empty(), "no permissive licence:\n{}", refused.join("\n"));
}

/// Whether the SPDX expression can be met with the allowed licences alone.
fn permissive(expression: &str) -> bool {
    spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX).is_ok_and(|expression| {
        expression.evaluate(|requirement| requirement.license.id().is_some_and(|id| ALLOWED.contains(&id.name)))
    })
}

#[test]
fn copyleft_alone_is_refused() {
    for (expression, expected) in [
        ("MIT OR Apache-2.0", true),
        ("MIT/Apache-2.0", true),
        ("MIT OR LGPL-2.1-or-later", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("GPL-3.0-only", false),
        ("MIT AND GPL-3.0-only", false),
        ("none stated", false),
    ] {
        assert_eq!(permissive(expression), expected, "{expression}");
    }
}
