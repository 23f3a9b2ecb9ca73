//! A report as one HTML file: paragraphs, charts as inline SVG, tables. Nothing in it is fetched from anywhere, and it is
//! well-formed XML, too. Texts are escaped by the template engine; charts are taken as they are. It fits a telephone as
//! well as a wide screen, light or dark: what is too wide scrolls by itself, under headings that stay.

#[cfg(test)]
pub mod reader;

use serde::Serialize;
use tera::{Context, Kwargs, State, Tera};

const PAGE: (&str, &str) = ("page.html", include_str!("page.html"));

/// A whole page.
#[derive(Debug, Default, Serialize)]
pub struct Page {
    /// Its title and first heading.
    pub title: String,
    /// Paragraphs before the first section.
    pub lines: Vec<String>,
    /// What follows, in order.
    pub sections: Vec<Section>,
}

/// A heading and what is below it.
#[derive(Debug, Default, Serialize)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// Paragraphs.
    pub lines: Vec<String>,
    /// Charts, behind the paragraphs.
    pub figures: Vec<Figure>,
    /// Tables, below the charts.
    pub tables: Vec<Table>,
}

/// A chart.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// What its marks mean; it stands outside the drawing, so it covers nothing.
    pub legend: Vec<Key>,
    /// An `<svg>` element. What is black in it has the colour of the page's text.
    pub svg: String,
    /// A sentence below it.
    pub caption: String,
}

/// One entry of a legend.
#[derive(Debug, Serialize)]
pub struct Key {
    /// A character of the mark's shape.
    pub mark: char,
    /// A CSS colour.
    pub colour: String,
    pub opacity: f64,
    pub name: String,
}

/// A table: every row has a cell for every column.
#[derive(Debug, Serialize)]
pub struct Table {
    /// What it holds, if it is folded away behind that.
    summary: Option<String>,
    columns: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Column {
    name: String,
    is_text: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    weight: Weight,
    cells: Vec<Cell>,
}

#[derive(Debug, Serialize)]
struct Cell {
    class: &'static str,
    text: String,
}

/// Cells of more characters wrap.
const LONG: usize = 24;

/// How a row stands out.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// Not at all.
    #[default]
    Plain,
    /// The one that counts.
    Strong,
    /// One that came to nothing.
    Weak,
}

impl Table {
    /// An empty table. Columns whose name begins with `<` hold text, at the left; the others numbers, at the right.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        let column = |name: &str| match name.strip_prefix('<') {
            Some(name) => Column { name: name.to_owned(), is_text: true },
            None => Column { name: name.to_owned(), is_text: false },
        };
        Self { summary: None, columns: columns.into_iter().map(column).collect(), rows: Vec::new() }
    }

    /// Folds it away behind a sentence that says what it holds.
    pub fn folded(self, summary: String) -> Self {
        Self { summary: Some(summary), ..self }
    }

    /// Adds a row; cells that are missing are empty.
    pub fn row(&mut self, weight: Weight, cells: impl IntoIterator<Item = String>) {
        let mut texts = cells.into_iter();
        let cell = |column: &Column| Cell::new(texts.next().unwrap_or_default(), column.is_text);
        self.rows.push(Row { weight, cells: self.columns.iter().map(cell).collect() });
    }
}

impl Cell {
    fn new(text: String, is_text: bool) -> Self {
        let class = match (is_text, text.chars().count() > LONG) {
            (true, true) => "text long",
            (true, false) => "text",
            (false, _) => "",
        };
        Self { class, text }
    }
}

impl Page {
    /// The page's text.
    ///
    /// # Errors
    /// The template engine's, if a value is missing.
    pub fn html(&self) -> Result<String, tera::Error> {
        let mut tera = Tera::new();
        tera.register_filter("parts", |text: &str, _: Kwargs, _: &State| parts(text));
        // Names that end in .html are escaped.
        tera.add_raw_template(PAGE.0, PAGE.1)?;
        tera.render(PAGE.0, &Context::from_serialize(self)?)
    }
}

/// What lines may break between: names of kernels and problems have no spaces, but dots and colons before letters.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let breaks = matches!(letter, '.' | ':') && letters.peek().is_some_and(|next| next.is_alphabetic());
        match parts.last_mut() {
            Some(part) if !breaks || part.is_empty() => part.push(letter),
            _ => parts.push(letter.to_string()),
        }
    }
    parts
}
