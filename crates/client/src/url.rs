//! The URL of a cluster: one form for every language and tool.
//!
//! ```text
//! thunderhead://HOST[:PORT][,HOST[:PORT]...]/[?deadline=TIME&cluster=ID&polling=WAY&in_flight=N]
//! ```
//!
//! The hosts are the coordinators, by name or number; a number of IPv6 stands in brackets. The
//! slash may be left out.

use crate::client::Options;
use std::fmt;
use std::time::Duration;
use thunderhead_runtime::os::addresses_of;
use thunderhead_wire::ClusterId;

/// The port of a coordinator that names none.
const PORT: u16 = 7070;

/// The start of every URL of a cluster.
const SCHEME: &str = "thunderhead://";

/// The most coordinators in a URL, which bounds the work of resolving their names.
const HOSTS_MAX: usize = 64;

/// The longest deadline: a year. A longer one is more likely a mistake of units.
const DEADLINE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// The reason why a URL does not name a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError(String);

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UrlError {}

/// A URL of a cluster, taken apart. Names are not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterUrl {
    /// The coordinators.
    pub hosts: Vec<(String, u16)>,
    /// The deadline of each operation, if the URL has one.
    pub deadline: Option<Duration>,
    /// The only cluster that the client may talk to, if the URL has one.
    pub cluster: Option<ClusterId>,
    /// The way to wait for answers, if the URL has one.
    pub polling: Option<thunderhead_runtime::polling::Polling>,
    /// The limit of operations in flight, if the URL has one.
    pub in_flight_max: Option<usize>,
}

impl std::str::FromStr for ClusterUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<ClusterUrl, UrlError> {
        let wrong = |why: String| UrlError(format!("{why}; a URL looks like {SCHEME}host:{PORT}"));
        let url = url.trim();
        let scheme = url.get(..SCHEME.len()).filter(|it| it.eq_ignore_ascii_case(SCHEME));
        if scheme.is_none() {
            return Err(wrong(format!("the URL does not begin with {SCHEME}")));
        }
        let rest = &url[SCHEME.len()..];
        let (place, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        if !path.is_empty() {
            return Err(wrong(format!("the URL has a path, {path:?}, and a cluster has none")));
        }
        if authority.contains('@') {
            return Err(wrong("the URL names a user, and clusters have no users yet".to_owned()));
        }
        let hosts: Result<Vec<_>, String> = authority.split(',').map(host).collect();
        let hosts = hosts.map_err(wrong)?;
        if hosts.len() > HOSTS_MAX {
            return Err(wrong(format!("the URL names more than {HOSTS_MAX} coordinators")));
        }
        let mut parsed =
            ClusterUrl { hosts, deadline: None, cluster: None, polling: None, in_flight_max: None };
        let mut known: Vec<&str> = Vec::new();
        for setting in settings.split('&').filter(|it| !it.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            if known.contains(&name) {
                return Err(UrlError(format!("the URL has the setting {name:?} twice")));
            }
            known.push(name);
            parsed.set(name, value)?;
        }
        Ok(parsed)
    }
}

impl ClusterUrl {
    fn set(&mut self, name: &str, value: &str) -> Result<(), UrlError> {
        let wrong = |expected: &str| {
            UrlError(format!("the URL's setting {name}={value} is wrong: it must be {expected}"))
        };
        match name {
            "deadline" => {
                let time =
                    duration(value).ok_or_else(|| wrong("a time such as 500ms, 2s or 1m"))?;
                if time.is_zero() || time > DEADLINE_MAX {
                    return Err(wrong("more than nothing and at most a year"));
                }
                self.deadline = Some(time);
            }
            "cluster" => {
                let id = value.strip_prefix("0x").map_or_else(
                    || value.parse().ok(),
                    |digits| u64::from_str_radix(digits, 16).ok(),
                );
                let id = id.filter(|id| *id != 0);
                self.cluster = Some(ClusterId(id.ok_or_else(|| {
                    wrong("the id of a cluster, which `thunderhead status` shows")
                })?));
            }
            "polling" => {
                self.polling = Some(value.parse().map_err(|_| wrong("always, adaptive or never"))?);
            }
            "in_flight" => {
                let most: Option<usize> = value.parse().ok().filter(|most| *most > 0);
                self.in_flight_max = Some(most.ok_or_else(|| wrong("a number above 0"))?);
            }
            _ => {
                return Err(UrlError(format!(
                    "the URL has an unknown setting, {name:?}; known are deadline, cluster, \
                     polling and in_flight"
                )));
            }
        }
        Ok(())
    }

    /// Resolves the names and returns the options for a client. This may take seconds.
    ///
    /// # Errors
    /// If no name has an address.
    pub fn resolve(&self) -> Result<Options, UrlError> {
        let addresses = addresses_of(self.hosts.clone()).map_err(|error| {
            UrlError(format!("no coordinator can be found: {error}; check the URL's hosts"))
        })?;
        let mut options = Options::new(addresses);
        if self.deadline.is_some() {
            options.deadline = self.deadline;
        }
        if let Some(cluster) = self.cluster {
            options = options.of_cluster(cluster);
        }
        if let Some(polling) = self.polling {
            options.polling = polling;
        }
        if let Some(most) = self.in_flight_max {
            options.in_flight_max = most;
        }
        Ok(options)
    }
}

impl Options {
    /// Returns the options that a URL names, such as `thunderhead://localhost:7070`. Resolves the
    /// names of the hosts, which may take seconds.
    ///
    /// # Errors
    /// If the URL is wrong, or no host has an address.
    pub fn of_url(url: &str) -> Result<Options, UrlError> {
        url.parse::<ClusterUrl>()?.resolve()
    }
}

/// Reads `host`, `host:port`, `[::1]` or `[::1]:port`.
fn host(text: &str) -> Result<(String, u16), String> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, port) =
                rest.split_once(']').ok_or_else(|| format!("{text:?} has no closing bracket"))?;
            if name.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(format!("{name:?} is not an address of IPv6"));
            }
            let port = match port.strip_prefix(':') {
                None if port.is_empty() => None,
                None => return Err(format!("{port:?} follows the bracket, and not a port")),
                Some(port) => Some(port),
            };
            (name, port)
        }
        None => match text.split_once(':') {
            None => (text, None),
            Some((_, port)) if port.contains(':') => {
                return Err(format!("{text:?} has several colons; write IPv6 as [::1]:{PORT}"));
            }
            Some((name, port)) => (name, Some(port)),
        },
    };
    if name.is_empty() {
        return Err("the URL has an empty host".to_owned());
    }
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "?#%\\\"<>".contains(c);
    if name.chars().any(is_odd) {
        return Err(format!("{name:?} is not the name of a host"));
    }
    let port = match port {
        None => PORT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|number| *number != 0 && port.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or_else(|| format!("{port:?} is not a port (1 to 65535)"))?,
    };
    Ok((name.to_owned(), port))
}

/// Reads a time: whole or decimal, with a unit.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let seconds: f64 = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thunderhead_runtime::polling::Polling;

    fn parsed(url: &str) -> ClusterUrl {
        url.parse().unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn a_url_names_hosts_and_settings() {
        let url = parsed("thunderhead://h1:7071,h2,[::1]:9,10.0.0.1/?deadline=2s&polling=never");
        let hosts = [("h1", 7071), ("h2", 7070), ("::1", 9), ("10.0.0.1", 7070)];
        assert_eq!(url.hosts, hosts.map(|(host, port)| (host.to_owned(), port)));
        assert_eq!(url.deadline, Some(Duration::from_secs(2)));
        assert_eq!(url.polling, Some(Polling::Never));
        assert_eq!((url.cluster, url.in_flight_max), (None, None));
        let url = parsed(" Thunderhead://h?cluster=0xff&in_flight=10&deadline=1.5m ");
        assert_eq!(url.cluster, Some(ClusterId(255)));
        assert_eq!((url.in_flight_max, url.deadline), (Some(10), Some(Duration::from_secs(90))));
        assert_eq!(parsed("thunderhead://[::1]").hosts, [("::1".to_owned(), 7070)]);
    }

    #[test]
    fn a_wrong_url_says_its_mistake() {
        for (url, expected) in [
            ("", "does not begin"),
            ("redis://h", "does not begin"),
            ("thunderhead:/h", "does not begin"),
            ("thünderhead://h", "does not begin"),
            ("thunderhead://", "empty host"),
            ("thunderhead://a,,b", "empty host"),
            ("thunderhead://:1", "empty host"),
            ("thunderhead://h:0", "not a port"),
            ("thunderhead://h:65536", "not a port"),
            ("thunderhead://h:+1", "not a port"),
            ("thunderhead://h:", "not a port"),
            ("thunderhead://::1", "several colons"),
            ("thunderhead://[::1", "closing bracket"),
            ("thunderhead://[h]", "not an address"),
            ("thunderhead://[::1]x", "follows the bracket"),
            ("thunderhead://a b", "not the name"),
            ("thunderhead://h/db", "path"),
            ("thunderhead://ada:pw@h", "user"),
            ("thunderhead://h/?deadline=2", "a time such as"),
            ("thunderhead://h/?deadline=0s", "more than nothing"),
            ("thunderhead://h/?deadline=1e9s", "a time such as"),
            ("thunderhead://h/?deadline=99999999h", "at most a year"),
            ("thunderhead://h/?deadline", "a time such as"),
            ("thunderhead://h/?cluster=0", "id of a cluster"),
            ("thunderhead://h/?polling=now", "always, adaptive or never"),
            ("thunderhead://h/?in_flight=-1", "above 0"),
            ("thunderhead://h/?dedline=2s", "unknown setting"),
            ("thunderhead://h/?deadline=1s&deadline=2s", "twice"),
        ] {
            let error = url.parse::<ClusterUrl>().expect_err(url).to_string();
            assert!(error.contains(expected), "{url}: {error}");
        }
        let many = vec!["h"; HOSTS_MAX + 1].join(",");
        assert!(format!("thunderhead://{many}").parse::<ClusterUrl>().is_err());
    }
}
