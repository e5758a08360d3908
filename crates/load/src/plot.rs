//! Figures as SVG files: only lines over a numeric axis, and groups of bars.

use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

const WIDTH: f64 = 720.0;
const PANEL_HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 48.0;
/// With more places on a horizontal axis than this, not every place is labelled, and lines have no
/// dots.
const MARKS_MAX: usize = 20;

const COLOURS: [&str; 8] =
    ["#1b6ca8", "#d1495b", "#2e933c", "#edae49", "#66418a", "#00798c", "#8d6a4f", "#555555"];

/// One line, or the bars of one colour.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// For lines: x and y. For bars: the number of the group and the height.
    pub points: Vec<(f64, f64)>,
}

/// How the series are drawn.
#[derive(Clone, Debug)]
pub enum Marks {
    /// Lines, with a dot at each point if there are few.
    Lines,
    /// A group of bars for each name.
    Bars(Vec<String>),
}

/// One pair of axes with its series.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x_label: String,
    /// The vertical axis, which begins at 0.
    pub y_label: String,
    /// Lines or bars.
    pub marks: Marks,
    /// The data.
    pub series: Vec<Series>,
}

/// Checks that a figure can be written, before the measurement: a typing error in the path must not
/// waste a run of minutes. Leaves no file behind and changes none.
///
/// # Errors
/// When it cannot be written.
pub fn check(path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let open = |new: bool| std::fs::OpenOptions::new().write(true).create_new(new).open(path);
    let result = match open(true) {
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => open(false).map(drop),
        Err(error) => Err(error),
    };
    result.with_context(|| format!("--plot: {} cannot be written", path.display()))
}

/// Draws panels below each other into a file.
///
/// # Errors
/// When the file cannot be written.
pub fn save(path: &Path, panels: &[Panel]) -> Result<()> {
    std::fs::write(path, svg(panels)).with_context(|| format!("writing {}", path.display()))
}

fn svg(panels: &[Panel]) -> String {
    let height = PANEL_HEIGHT * panels.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, panel) in panels.iter().enumerate() {
        let _ = writeln!(out, "<g transform=\"translate(0 {})\">", PANEL_HEIGHT * number as f64);
        panel.draw(&mut out);
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns a round number at least as large, and the distance of the marks up to it.
fn round_up(most: f64) -> (f64, f64) {
    let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
    let magnitude = 10f64.powf((most / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|step| step * 5.0 >= most * 0.999)
        .unwrap_or(most);
    ((most / step * 0.999).ceil() * step, step)
}

/// Formats a number without superfluous digits.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

impl Panel {
    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.series.iter().flat_map(|series| series.points.iter().copied())
    }

    fn draw(&self, out: &mut String) {
        let (width, height) = (WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM);
        let (top, step) = round_up(self.points().map(|(_, y)| y).fold(0.0, f64::max));
        let y_at = |y: f64| TOP + height * (1.0 - y / top);
        let title = escaped(&self.title);
        let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"20\" font-weight=\"bold\">{title}</text>");
        let mut y = 0.0;
        while y <= top * 1.001 {
            let at = y_at(y);
            let right = LEFT + width;
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                short(y)
            );
            y += step;
        }
        let middle = TOP + height / 2.0;
        let _ = writeln!(
            out,
            "<text transform=\"translate(16 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            escaped(&self.y_label),
            LEFT + width / 2.0,
            PANEL_HEIGHT - 10.0,
            escaped(&self.x_label)
        );
        match &self.marks {
            Marks::Lines => self.draw_lines(out, width, &y_at),
            Marks::Bars(groups) => self.draw_bars(out, width, groups, &y_at),
        }
        for (number, series) in self.series.iter().enumerate() {
            let (x, y) = (LEFT + width + 14.0, TOP + 8.0 + 18.0 * number as f64);
            let colour = COLOURS[number % COLOURS.len()];
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text>",
                y - 10.0,
                x + 18.0,
                y,
                escaped(&series.name)
            );
        }
    }

    fn x_mark(out: &mut String, x: f64, text: &str) {
        let y = PANEL_HEIGHT - BOTTOM + 16.0;
        let text = escaped(text);
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>");
    }

    fn draw_lines(&self, out: &mut String, width: f64, y_at: &dyn Fn(f64) -> f64) {
        let mut marks: Vec<f64> = self.points().map(|(x, _)| x).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        let (Some(first), Some(last)) = (marks.first().copied(), marks.last().copied()) else {
            return;
        };
        let span = if last > first { last - first } else { 1.0 };
        let few = marks.len() <= MARKS_MAX;
        if !few {
            let (top, step) = round_up(last);
            let steps = (top / step).round() as u32;
            marks = (0..=steps).map(|it| f64::from(it) * step).collect();
            marks.retain(|it| (first..=last).contains(it));
        }
        let x_at = |x: f64| LEFT + 10.0 + (width - 20.0) * (x - first) / span;
        for mark in &marks {
            Panel::x_mark(out, x_at(*mark), &short(*mark));
        }
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let path: Vec<String> = series
                .points
                .iter()
                .map(|(x, y)| format!("{:.1},{:.1}", x_at(*x), y_at(*y)))
                .collect();
            let line = path.join(" ");
            let _ = writeln!(
                out,
                "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
            );
            // Very many dots would hide the line.
            for (x, y) in series.points.iter().filter(|_| few) {
                let (x, y) = (x_at(*x), y_at(*y));
                let _ = writeln!(
                    out,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
                );
            }
        }
    }

    fn draw_bars(
        &self,
        out: &mut String,
        width: f64,
        groups: &[String],
        y_at: &dyn Fn(f64) -> f64,
    ) {
        let group_width = width / groups.len().max(1) as f64;
        let bar = group_width * 0.8 / self.series.len().max(1) as f64;
        for (number, group) in groups.iter().enumerate() {
            Panel::x_mark(out, LEFT + group_width * (number as f64 + 0.5), group);
        }
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            for (group, y) in &series.points {
                let x = LEFT + group_width * (group + 0.1) + bar * number as f64;
                let (from, to) = (y_at(*y), y_at(0.0));
                let _ = writeln!(
                    out,
                    "<rect x=\"{x:.1}\" y=\"{from:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                     fill=\"{colour}\"/>",
                    bar * 0.9,
                    to - from
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers_above_the_data() {
        for (most, expected) in [(0.93, 1.0), (1.0, 1.0), (4.2, 5.0), (7.9, 8.0), (23.0, 25.0)] {
            let (top, step) = round_up(most);
            assert!((top - expected).abs() < 1e-9, "{most}: {top}");
            assert!(top / step <= 10.0 && step > 0.0);
        }
        assert!(round_up(f64::NAN).0 > 0.0 && round_up(0.0).0 > 0.0);
    }

    #[test]
    fn a_path_is_tried_without_a_trace() {
        let folder = std::env::temp_dir().join(format!("plot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("figure.svg");
        check(Some(&path)).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "before").unwrap();
        check(Some(&path)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        assert!(check(Some(&folder)).is_err());
        assert!(check(Some(&folder.join("no/figure.svg"))).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
        check(None).unwrap();
    }

    #[test]
    fn a_figure_is_well_formed_for_any_names() {
        let series = Series { name: "a < b & c".into(), points: vec![(0.0, 1.0), (1.0, 3.0)] };
        let panel = |marks| Panel {
            title: "<t>".into(),
            x_label: "x".into(),
            y_label: "y".into(),
            marks,
            series: vec![series.clone(), Series::default()],
        };
        let bars = panel(Marks::Bars(vec!["W1".into(), "W2".into()]));
        let text = svg(&[panel(Marks::Lines), bars]);
        assert!(text.contains("a &lt; b &amp; c") && text.ends_with("</svg>\n"));
        assert_eq!(text.matches("<g ").count(), 2);
        assert!(!text.contains("NaN"));
    }
}
