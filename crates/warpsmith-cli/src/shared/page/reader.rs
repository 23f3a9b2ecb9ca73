//! What every page of a report must be.

use roxmltree::{Document, ParsingOptions};

/// The `<svg>` elements of a page and all of its text, if it is well-formed and needs nothing from outside.
pub fn read(html: &str) -> (usize, String) {
    let document =
        Document::parse_with_options(html, ParsingOptions { allow_dtd: true, ..Default::default() }).unwrap();
    let elements = || document.descendants().filter(|node| node.is_element());
    let fetching = ["script", "link", "img", "image", "iframe", "object", "use"];
    let fetched = elements().find(|element| fetching.contains(&element.tag_name().name()));
    assert!(fetched.is_none(), "{fetched:?}");
    let names = ["href", "src", "srcset", "data", "action"];
    let linked = elements().find(|element| element.attributes().any(|attribute| names.contains(&attribute.name())));
    assert!(linked.is_none(), "{linked:?}");
    assert!(!html.contains("url(") && !html.contains("@import"));
    let svg = elements().filter(|element| element.has_tag_name(("http://www.w3.org/2000/svg", "svg"))).count();
    (svg, document.descendants().filter_map(|node| node.is_text().then(|| node.text()).flatten()).collect())
}
