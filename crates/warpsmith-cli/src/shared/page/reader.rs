//! What every page of a report must be.

use roxmltree::{Document, Node, ParsingOptions};

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

/// A box: left, top, right, bottom.
type Area = [f64; 4];

const SVG: &str = "http://www.w3.org/2000/svg";

/// What a reader can be sure of in any browser, whatever its letters: texts of a chart lie within it, apart from each
/// other and from bars; its legend is beside it; where rows are many they are folded away; tables scroll, the page does
/// not.
pub fn assert_legible(html: &str) {
    let document =
        Document::parse_with_options(html, ParsingOptions { allow_dtd: true, ..Default::default() }).unwrap();
    let elements = |name: &'static str| document.descendants().filter(move |node| node.tag_name().name() == name);
    for svg in elements("svg") {
        let figure = svg.ancestors().find(|node| node.has_tag_name("figure")).unwrap_or(svg);
        let entries = figure.descendants().filter(|node| node.has_tag_name("li"));
        // Without their marks.
        let names: Vec<&str> = entries.filter_map(|entry| entry.children().find_map(|node| node.text())).collect();
        assert!(!names.is_empty(), "a chart without a legend");
        assert_chart(svg, &names);
    }
    for table in elements("table") {
        let is_in = |test: &dyn Fn(Node) -> bool| table.ancestors().any(test);
        assert!(is_in(&|node| node.attribute("class") == Some("scroll")), "a table that widens the page");
        let rows = table.descendants().filter(|node| node.has_tag_name("tr")).count();
        let has_chart = is_in(&|node| {
            node.has_tag_name("section") && node.descendants().any(|node| node.has_tag_name((SVG, "svg")))
        });
        let is_folded = is_in(&|node| node.has_tag_name("details"));
        assert!(rows <= 50 || !has_chart || is_folded, "{rows} rows below a chart");
    }
    for cell in elements("td") {
        // What a telephone's 390 pixels hold, at 8 a letter, and little more.
        let longest = cell.children().filter_map(|node| node.text()).map(longest_word).max().unwrap_or(0);
        assert!(longest <= 40, "no line breaks in `{}`", whole(cell));
    }
}

fn longest_word(text: &str) -> usize {
    text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0)
}

fn whole(node: Node) -> String {
    node.descendants().filter(Node::is_text).filter_map(|text| text.text()).collect()
}

fn assert_chart(svg: Node, legend: &[&str]) {
    let frame = numbers(svg.attribute("viewBox").unwrap_or_default());
    let (bars, texts): (Vec<_>, Vec<_>) = svg
        .children()
        .filter(|node| node.is_element())
        .filter(|node| match node.tag_name().name() {
            // Bands behind the bars let texts shine through.
            "rect" => number(*node, "opacity") == 1.0,
            name => name == "text",
        })
        .partition(|node| node.has_tag_name((SVG, "rect")));
    let bars: Vec<Area> = bars.into_iter().map(rectangle).collect();
    let texts: Vec<(String, Area)> =
        texts.into_iter().map(|node| (whole(node).trim().to_owned(), text(node))).collect();
    assert!(!texts.is_empty(), "a chart without texts");
    for (index, (words, area)) in texts.iter().enumerate() {
        let [left, top, right, bottom] = *area;
        let is_within = left >= 0.0 && top >= 0.0 && right <= frame[2] && bottom <= frame[3];
        assert!(is_within, "`{words}` at {area:?} is cut off in {frame:?}");
        let entry = legend.iter().find(|entry| **entry == words);
        assert!(entry.is_none(), "{entry:?} of the legend in the plot");
        let other = texts[..index].iter().find(|(_, other)| meet(area, other));
        assert!(other.is_none(), "`{words}` at {area:?} overlaps {other:?}");
        let bar = bars.iter().find(|bar| meet(area, bar));
        assert!(bar.is_none(), "`{words}` at {area:?} lies on a bar at {bar:?}");
    }
}

fn meet(a: &Area, b: &Area) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

fn rectangle(node: Node) -> Area {
    let [x, y, width, height] = ["x", "y", "width", "height"].map(|name| number(node, name));
    [x, y, x + width, y + height]
}

/// About, with letters as wide as DejaVu Sans has them, which is among the widest.
fn text(node: Node) -> Area {
    let (x, y, size) = (number(node, "x"), number(node, "y"), number(node, "font-size"));
    assert!(size >= 12.0, "letters of {size} pixels");
    let width = 0.64 * size * whole(node).trim().chars().count() as f64;
    let left = match node.attribute("text-anchor") {
        Some("end") => -width,
        Some("middle") => -width / 2.0,
        _ => 0.0,
    };
    let base = match node.attribute("dy") {
        Some("0.76em") => 0.76 * size,
        Some("-0.5ex") => -0.25 * size,
        _ => 0.25 * size,
    };
    let (right, top, bottom) = (left + width, base - 0.74 * size, base + 0.2 * size);
    if node.attribute("transform").is_some_and(|turn| turn.starts_with("rotate(270")) {
        return [x + top, y - right, x + bottom, y - left];
    }
    [x + left, y + top, x + right, y + bottom]
}

fn number(node: Node, name: &str) -> f64 {
    node.attribute(name).and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
}

fn numbers(text: &str) -> Vec<f64> {
    text.split(' ').filter_map(|number| number.parse().ok()).collect()
}

/// A chart in a page, as it has to be but for what is put into it.
fn chart(inside: &str) -> String {
    let text = r#"<text x="9" y="20" dy="0.5ex" font-size="13" text-anchor="start">speed</text>"#;
    let svg = format!(r#"<svg xmlns="{SVG}" viewBox="0 0 100 100">{text}{inside}</svg>"#);
    format!("<section><figure><ul><li>key</li></ul>{svg}</figure></section>")
}

#[test]
fn what_is_not_legible_is_told() {
    let text = |x: u32, y: u32, size: u32, word: &str| {
        format!(r#"<text x="{x}" y="{y}" dy="0.5ex" font-size="{size}" text-anchor="start">{word}</text>"#)
    };
    let bar = |y: u32| format!(r#"<rect x="0" y="{y}" width="90" height="9" opacity="1"/>"#);
    assert_legible(&chart(&(text(9, 60, 13, "other") + &bar(80))));
    let faults = [
        (text(9, 60, 9, "other"), "letters of 9"),
        (text(80, 60, 13, "other"), "cut off"),
        (text(20, 22, 13, "other"), "overlaps"),
        (bar(15), "lies on a bar"),
        (text(9, 60, 13, "key"), "of the legend in the plot"),
    ]
    .map(|(inside, expected)| (chart(&inside), expected));
    let below = |table: &str| chart("").replace("</section>", &format!("{table}</section>"));
    let rows = "<tr><td>1</td></tr>".repeat(60);
    let name = "wgmma.t64x128x128.s5.interleaved.ws3.shared.dsmem2";
    let of_tables = [
        (below("<table/>"), "a table that widens the page"),
        (below(&format!(r#"<div class="scroll"><table>{rows}</table></div>"#)), "60 rows below a chart"),
        (below(&format!("<td>{name}</td>")), "no line breaks in `wgmma"),
        (chart("").replace("<li>key</li>", ""), "a chart without a legend"),
    ];
    assert_legible(&below(&format!(r#"<details><div class="scroll"><table>{rows}</table></div></details>"#)));
    for (page, expected) in faults.into_iter().chain(of_tables) {
        let told = std::panic::catch_unwind(|| assert_legible(&page)).unwrap_err();
        let constant = || told.downcast_ref::<&str>().map(|told| (*told).to_owned());
        let told = told.downcast_ref::<String>().cloned().or_else(constant).unwrap_or_default();
        assert!(told.contains(expected), "{expected}: {told}");
    }
}
