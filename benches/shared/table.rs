//! Figures and their bars: printed as they come, and as one table at the end.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};

use comfy_table::{Table, presets};

/// One line of the table.
pub struct Figure {
    what: String,
    seen: String,
    bar: String,
    /// `None`: shown only, there is no bar.
    held: Option<bool>,
}

/// What one bench found.
pub struct Report {
    name: &'static str,
    figures: Vec<Figure>,
}

impl Report {
    pub fn new(name: &'static str) -> Self {
        line(format_args!("\n== {name} =="));
        Self {
            name,
            figures: Vec::new(),
        }
    }

    /// Sizes and settings.
    pub fn note(&self, text: impl Display) {
        line(format_args!("   {text}"));
    }

    /// A figure without a bar.
    pub fn shown(&mut self, what: impl Display, value: f64, unit: &str) {
        self.add(what, quantity(value, unit), String::new(), None);
    }

    /// A figure that must reach its bar.
    pub fn at_least(&mut self, what: impl Display, value: f64, bar: f64, unit: &str) {
        let asked = format!("≥ {}", quantity(bar, unit));
        self.add(what, quantity(value, unit), asked, Some(value >= bar));
    }

    /// A figure that must stay within its bar.
    pub fn at_most(&mut self, what: impl Display, value: f64, bar: f64, unit: &str) {
        let asked = format!("≤ {}", quantity(bar, unit));
        self.add(what, quantity(value, unit), asked, Some(value <= bar));
    }

    /// Something that is so or not.
    pub fn holds(&mut self, what: impl Display, held: bool, seen: impl Display) {
        self.add(what, seen.to_string(), "holds".into(), Some(held));
    }

    fn add(&mut self, what: impl Display, seen: String, bar: String, held: Option<bool>) {
        let figure = Figure {
            what: what.to_string(),
            seen,
            bar,
            held,
        };
        line(format_args!(
            "   {:<58} {:>16}  {:<12} {}",
            figure.what,
            figure.seen,
            figure.bar,
            verdict(figure.held)
        ));
        self.figures.push(figure);
    }

    /// How many bars were missed.
    pub fn short(&self) -> usize {
        let short = |f: &&Figure| f.held == Some(false);
        self.figures.iter().filter(short).count()
    }
}

/// All of them, as one table.
pub fn print(reports: &[Report]) {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["bench", "figure", "seen", "bar", ""]);
    for report in reports {
        for f in &report.figures {
            table.add_row([report.name, &f.what, &f.seen, &f.bar, verdict(f.held)]);
        }
    }
    line(format_args!("\n{table}"));
}

/// Prints a line, unless whoever reads has had enough.
pub fn line(text: impl Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Says how far it is, on a terminal only; an empty text removes it.
pub fn progress(text: impl Display) {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{text}").and_then(|()| err.flush());
    }
}

fn verdict(held: Option<bool>) -> &'static str {
    match held {
        None => "",
        Some(true) => "pass",
        Some(false) => "SHORT",
    }
}

fn quantity(value: f64, unit: &str) -> String {
    let gap = if unit.is_empty() || unit.starts_with(['/', '%', '×']) {
        ""
    } else {
        " "
    };
    format!("{}{gap}{unit}", number(value))
}

/// Three digits that count, thousands apart.
fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size >= 100.0 || value == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 0.1 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}
