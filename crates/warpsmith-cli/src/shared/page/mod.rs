//! A report as one HTML file: paragraphs, charts as inline SVG, tables. Nothing in it is fetched from anywhere, and it is
//! well-formed XML, too. Texts are escaped by the template engine; charts are taken as they are.

#[cfg(test)]
pub mod reader;

use serde::Serialize;
use tera::{Context, Tera};

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
    /// Tables, behind the charts.
    pub tables: Vec<Table>,
}

/// A chart.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// An `<svg>` element.
    pub svg: String,
    /// A sentence below it.
    pub caption: String,
}

/// A table: every row has a cell for every column.
#[derive(Debug, Serialize)]
pub struct Table {
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
    text: String,
    is_text: bool,
}

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
        Self { columns: columns.into_iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row; cells that are missing are empty.
    pub fn row(&mut self, weight: Weight, cells: impl IntoIterator<Item = String>) {
        let mut texts = cells.into_iter();
        let cell = |column: &Column| Cell { text: texts.next().unwrap_or_default(), is_text: column.is_text };
        self.rows.push(Row { weight, cells: self.columns.iter().map(cell).collect() });
    }
}

impl Page {
    /// The page's text.
    ///
    /// # Errors
    /// The template engine's, if a value is missing.
    pub fn html(&self) -> Result<String, tera::Error> {
        let mut tera = Tera::new();
        // Names that end in .html are escaped.
        tera.add_raw_template(PAGE.0, PAGE.1)?;
        tera.render(PAGE.0, &Context::from_serialize(self)?)
    }
}
