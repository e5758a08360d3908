//! The progress of long work, shown on a terminal once it takes longer than a moment.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Shorter work gets no bar.
const MOMENT: Duration = Duration::from_secs(1);

/// The progress of some work.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    total: Option<u64>,
}

impl Progress {
    /// Begins work on so many bytes, if their number is known.
    pub(crate) fn new(shown: bool, total: Option<u64>) -> Progress {
        let bar = shown.then(|| {
            let template = match total {
                Some(_) => "{wide_bar} {percent}% {msg}, {eta} left",
                None => "{spinner} {msg}, {elapsed}",
            };
            let style = ProgressStyle::with_template(template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(0).with_style(style)
        });
        Progress { bar, total }
    }

    pub(crate) fn at(&self, bytes: u64, message: impl FnOnce() -> String) {
        let Some(bar) = &self.bar else { return };
        if bar.elapsed() > MOMENT {
            bar.set_message(message());
            if let Some(total) = self.total {
                bar.set_length(total);
            }
            bar.set_position(bytes);
        }
    }

    pub(crate) fn end(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
