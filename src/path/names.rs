//! The CUDA of a path.

/// Names of values that templates use, with these.
pub(crate) type Names = Vec<(&'static str, serde_json::Value)>;

/// What lies in a path's folder under `templates/`: files, each with its name there and its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuda {
    /// Rendered: `PATH/kernel.cu`, the matrix kernel; `PATH/prepass.cu` and `PATH/early_prepass.cu`, if its variants have
    /// a prepass.
    pub(crate) templates: &'static [(&'static str, &'static str)],
    /// Ordinary CUDA that they include.
    pub(crate) headers: &'static [(&'static str, &'static str)],
}

/// Files below `templates/`.
macro_rules! templates {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/", $name)))),+]
    };
}
pub(crate) use templates;
