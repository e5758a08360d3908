//! A store's processes, with their files in a directory of their own. All of them end and are
//! removed when the value is dropped, and when this process is asked to end.

use anyhow::{Context as _, Result, bail, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thunderhead_load::children::{self, Children, locked};
use thunderhead_load::machine::pinned;

/// Directories to search for programs besides `PATH`.
const PLACES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// Returns the path of an installed program.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(PLACES.iter().map(PathBuf::from));
    places.map(|place| place.join(name)).find(|it| it.is_file())
}

/// Returns the output of a program that prints something and ends.
///
/// # Errors
/// When it cannot be started.
pub fn says(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("start {}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

struct Group {
    directory: PathBuf,
    members: Vec<(String, Child)>,
}

impl Children for Group {
    fn end(&mut self) {
        for (_, child) in &mut self.members {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.members.clear();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The processes of one store.
pub struct Processes(Arc<Mutex<Group>>);

impl Processes {
    /// Creates the directory, without processes.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn new() -> Result<Processes> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("thunderhead-peers-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("make the directory {}", directory.display()))?;
        let group = Arc::new(Mutex::new(Group { directory, members: Vec::new() }));
        let watched: Arc<Mutex<dyn Children>> = group.clone();
        children::watch(watched)?;
        Ok(Processes(group))
    }

    /// Returns the directory of their files.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        locked(&self.0).directory.clone()
    }

    /// Starts a process, pinned to a core.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn start(&self, name: &str, core: usize, path: &Path, arguments: &[String]) -> Result<()> {
        let mut group = locked(&self.0);
        let log = group.directory.join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(log).context("write a log")?;
        // A process that outlives this one would remain unnoticed.
        let mut command = match program("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL"]).arg(path);
                command
            }
            None => Command::new(path),
        };
        command.args(arguments).current_dir(&group.directory).stdin(Stdio::null());
        command.stdout(log.try_clone().context("write a log")?).stderr(log);
        // Ctrl-C goes to this process, which ends the children.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = pinned(core, || command.spawn());
        let child = child.with_context(|| format!("start {}", path.display()))?;
        group.members.push((name.to_owned(), child));
        Ok(())
    }

    /// Returns the id of the process of this name.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn process(&self, name: &str) -> Result<u32> {
        let group = locked(&self.0);
        let member = group.members.iter().find(|(it, _)| it == name);
        Ok(member.with_context(|| format!("{name} does not run"))?.1.id())
    }

    /// Returns the ids of all processes.
    #[must_use]
    pub fn all(&self) -> Vec<u32> {
        locked(&self.0).members.iter().map(|(_, child)| child.id()).collect()
    }

    /// Refuses to continue if a process has ended by itself.
    ///
    /// # Errors
    /// When a process has.
    pub fn ensure_whole(&self) -> Result<()> {
        let mut group = locked(&self.0);
        let directory = group.directory.clone();
        for (name, child) in &mut group.members {
            if let Ok(Some(status)) = child.try_wait() {
                let log = directory.join(format!("{name}.log"));
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let words: Vec<&str> = text.lines().rev().take(3).collect();
                bail!("{name} ended ({status}): {}", words.join(" / "));
            }
        }
        Ok(())
    }

    /// Waits until the process of this name, which was asked to end, has ended.
    ///
    /// # Errors
    /// When it takes too long.
    pub fn wait_ended(&self, name: &str, patience: Duration) -> Result<()> {
        let mut group = locked(&self.0);
        let place = group.members.iter().position(|(it, _)| it == name);
        let place = place.with_context(|| format!("{name} does not run"))?;
        let mut waited = Duration::ZERO;
        let look = Duration::from_millis(5);
        while let Some((_, child)) = group.members.get_mut(place)
            && child.try_wait()?.is_none()
        {
            ensure!(waited < patience, "{name} has not ended after {patience:?}");
            std::thread::sleep(look);
            waited += look;
        }
        group.members.remove(place);
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        locked(&self.0).end();
        children::forget(&self.0);
    }
}

/// Returns the resident bytes of a process.
///
/// # Errors
/// When the process has ended.
pub fn resident_bytes(process: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))
        .with_context(|| format!("look at process {process}"))?;
    resident_in(&text).context("read a process's resident memory")
}

/// Returns the resident bytes of a process and of all processes that descend from it. A program may
/// be started by another one, such as `go run`.
///
/// # Errors
/// When the process has ended.
pub fn resident_bytes_of_family(process: u32) -> Result<u64> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").context("list the processes")? {
        let name = entry.context("list the processes")?.file_name();
        let Some(child) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // It may have ended meanwhile.
        let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        parents.extend(parent_in(&status).map(|parent| (parent, child)));
    }
    let mut family = vec![process];
    let mut at = 0;
    while let Some(parent) = family.get(at).copied() {
        at += 1;
        family.extend(parents.iter().filter(|(of, _)| *of == parent).map(|(_, child)| *child));
    }
    let descendants = family.iter().skip(1).filter_map(|it| resident_bytes(*it).ok()).sum::<u64>();
    Ok(resident_bytes(process)? + descendants)
}

fn parent_in(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Returns the processor time of all threads of a process so far.
///
/// # Errors
/// When the process has ended.
pub fn processor_time(process: u32) -> Result<Duration> {
    let mut sum = 0u64;
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    for task in tasks.with_context(|| format!("look at process {process}"))? {
        // A thread may end during the loop.
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        sum += text.split_whitespace().next().and_then(|it| it.parse().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_and_their_files_are_removed_with_their_owner() {
        let processes = Processes::new().unwrap();
        let directory = processes.directory();
        let sleep = program("sleep").unwrap();
        processes.start("sleeper", 0, &sleep, &["1000".to_owned()]).unwrap();
        processes.ensure_whole().unwrap();
        let id = processes.process("sleeper").unwrap();
        assert!(resident_bytes(id).unwrap() > 0);
        // It is a child of this process.
        let family = resident_bytes_of_family(std::process::id()).unwrap();
        assert!(family >= resident_bytes(id).unwrap(), "{family}");
        assert!(processes.process("other").is_err());
        drop(processes);
        assert!(resident_bytes(id).is_err());
        assert!(!directory.exists());
    }

    #[test]
    fn a_process_that_ends_by_itself_is_reported_with_its_last_output() {
        let processes = Processes::new().unwrap();
        let shell = program("sh").unwrap();
        processes.start("brief", 0, &shell, &["-c".into(), "echo alas".into()]).unwrap();
        let told = loop {
            if let Err(error) = processes.ensure_whole() {
                break error.to_string();
            }
        };
        assert!(told.contains("brief ended") && told.contains("alas"), "{told}");
        processes.wait_ended("brief", Duration::from_secs(5)).unwrap();
    }

    #[test]
    fn the_kernels_memory_statistics_are_parsed() {
        assert_eq!(resident_in("VmPeak: 9 kB\nVmRSS:\t  12 kB\n"), Some(12288));
        assert_eq!(resident_in("VmRSS: many kB"), None);
        assert_eq!(parent_in("Name:\tsh\nPPid:\t 17\n"), Some(17));
        assert_eq!(parent_in("Name:\tsh\n"), None);
    }
}
