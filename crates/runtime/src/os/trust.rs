//! Decides which files of this machine may be used, and opens them.
//!
//! Other users may neither read nor change the clients' data. A file is used only if
//!
//! - it is a regular file, in a directory in which not every user may replace it;
//! - it belongs to a user with all rights here anyway: this process's user, or root; for a
//!   process of root also the directory's owner;
//! - other users may not write to it. A group may, if this process is in it: some systems give
//!   mounted volumes to a group.
//!
//! If other users may read a file of this process's user, opening it for writing takes that right
//! away.
//!
//! If every user may replace the files of a directory, as in volumes that Kubernetes mounts, the
//! files are in a directory within it that belongs to this process alone: an [`OwnDirectory`].
//!
//! A name may be a link to such a file, unless the file may have to be made. A link is followed
//! only to files of its owner. A link of this process's user or of root is
//! followed to files of this process's user as well. Otherwise a user could make a process of root
//! write to any file, by a link to it.

use rustix::fs::{
    FileType, Mode, OFlags, Stat, chmod, fchmod, fstat, lstat, mkdir, open, readlinkat, stat,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The name of the private directory within a directory that any user may change.
const PRIVATE: &str = "thunderhead-private";

/// The longest chain of links.
const LINKS_MAX: usize = 8;

/// How often a file is opened again because its name changed meanwhile.
const TRIES_MAX: usize = 16;

/// Rights of the group and of other users.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const NOT_OWN: u32 = 0o077;
/// Only their owners remove names from the directory.
const STICKY: u32 = 0o1000;

/// The purpose of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read.
    Read,
    /// To read and write.
    Write,
    /// To read and write; the file is made if it is missing.
    Make,
}

/// Opens a file that may be trusted.
///
/// # Errors
/// For a file that may not be trusted; otherwise the operating system's.
pub fn open_trusted(path: &Path, access: Access) -> io::Result<File> {
    open_with(path, access, OFlags::empty())
}

/// Whether the name is a file that may be trusted.
///
/// # Errors
/// For a file that may not be trusted, and for a link whose target is missing; otherwise the
/// operating system's.
pub fn find_trusted(path: &Path) -> io::Result<bool> {
    Ok(find(path)?.is_some())
}

/// Opens a file that may be trusted, with more flags.
pub(super) fn open_with(path: &Path, access: Access, more: OFlags) -> io::Result<File> {
    let way = if access == Access::Read { OFlags::RDONLY } else { OFlags::RDWR };
    let flags = way | OFlags::CLOEXEC | OFlags::NOFOLLOW | more;
    for _ in 0..TRIES_MAX {
        let Some(found) = find(path)? else {
            if access != Access::Make {
                return Err(at(path, Errno::NOENT.into()));
            }
            match open(path, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR) {
                Ok(file) => return Ok(file.into()),
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            }
        };
        if access == Access::Make && found.is_linked {
            let path = path.display();
            return Err(refusal(format!("{path} is a link, and may have to be made")));
        }
        let file = match open(&found.path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP) => continue,
            Err(error) => return Err(error.into()),
        };
        // The name may have become another file's since.
        let stat = fstat(&file)?;
        if (stat.st_dev, stat.st_ino) == (found.stat.st_dev, found.stat.st_ino) {
            let file = File::from(file);
            check_rights(path, &file, &stat, access)?;
            return Ok(file);
        }
    }
    Err(io::Error::other(format!("{} changes while it is opened", path.display())))
}

/// A file that may be trusted.
struct TrustedFile {
    /// The path without links.
    path: PathBuf,
    stat: Stat,
    is_linked: bool,
}

/// Looks for a file that may be trusted, without opening it: opening may wait, for example for a
/// pipe.
fn find(name: &Path) -> io::Result<Option<TrustedFile>> {
    let own = geteuid().as_raw();
    let mut path = name.to_owned();
    // The users to whose files the links so far may lead.
    let mut may_lead_to: Option<Vec<u32>> = None;
    for _ in 0..=LINKS_MAX {
        let above = match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
            _ => PathBuf::from("."),
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = stat(&above).and_then(|above| Ok((above, open(&path, flags, Mode::empty())?)));
        let (directory, file) = match opened {
            Ok(opened) => opened,
            Err(Errno::NOENT) if may_lead_to.is_some() => return Err(leads_nowhere(name)),
            Err(Errno::NOENT) => {
                check_directory(&above, &stat(&above)?)?;
                return Ok(None);
            }
            Err(error) => return Err(at(&path, error.into())),
        };
        check_directory(&above, &directory)?;
        let found = fstat(&file)?;
        let (kind, user) = (FileType::from_raw_mode(found.st_mode), found.st_uid);
        if ![FileType::RegularFile, FileType::Symlink].contains(&kind) {
            return Err(refusal(format!("{} is not a regular file", name.display())));
        }
        // Root manages other users' files in their own directories.
        let owner = if own == 0 { directory.st_uid } else { own };
        let trusted = may_lead_to.clone().unwrap_or_else(|| vec![own, 0, owner]);
        if !trusted.contains(&user) {
            let by =
                if may_lead_to.is_some() { ", to which a link of another user leads," } else { "" };
            let path = path.display();
            let why = format!("{path}{by} belongs to user {user} and this process to user {own}");
            return Err(refusal(why));
        }
        if kind == FileType::RegularFile {
            return Ok(Some(TrustedFile { path, stat: found, is_linked: may_lead_to.is_some() }));
        }
        let target = readlinkat(&file, "", Vec::new())?;
        let leads_to_own = [own, 0].contains(&user) && trusted.contains(&own);
        may_lead_to = Some(if leads_to_own { vec![user, own] } else { vec![user] });
        path = above.join(OsStr::from_bytes(target.to_bytes()));
    }
    Err(at(name, Errno::LOOP.into()))
}

/// Refuses a file that other users may have written, and takes the right to read it from them.
fn check_rights(path: &Path, file: &File, stat: &Stat, access: Access) -> io::Result<()> {
    let rights = stat.st_mode & 0o777;
    let by_group = rights & GROUP_WRITES != 0 && !is_member(stat.st_gid)?;
    if rights & OTHERS_WRITE != 0 || by_group {
        return Err(refusal(format!(
            "other users may write to {}, which has mode {rights:o}: take that right away (chmod 600) if they have not \
             changed it",
            path.display()
        )));
    }
    let is_own = stat.st_uid == geteuid().as_raw();
    if access != Access::Read && is_own && rights & NOT_OWN != 0 {
        fchmod(file, Mode::RUSR | Mode::WUSR)?;
    }
    Ok(())
}

/// Whether this process is in a group.
fn is_member(group: u32) -> io::Result<bool> {
    Ok(getegid().as_raw() == group || getgroups()?.iter().any(|it| it.as_raw() == group))
}

/// A directory for files of this process.
#[derive(Clone, Debug)]
pub(super) struct OwnDirectory {
    /// The named directory.
    given: PathBuf,
    /// The directory with the files.
    pub(super) inner: PathBuf,
    /// The user of the inner directory when it was found.
    user: u32,
}

impl OwnDirectory {
    /// Returns a directory without an inner one.
    pub(super) fn plain(path: PathBuf) -> OwnDirectory {
        OwnDirectory { inner: path.clone(), given: path, user: 0 }
    }

    /// Returns a directory, or the inner one if any user may change the outer one. If the files are
    /// only to be read, nothing is made, and root finds the files of any user.
    pub(super) fn of(given: &Path, reads_only: bool) -> io::Result<OwnDirectory> {
        let own = geteuid().as_raw();
        let directory = stat(given).map_err(|error| at(given, error.into()))?;
        if FileType::from_raw_mode(directory.st_mode) != FileType::Directory {
            return Err(at(given, Errno::NOTDIR.into()));
        }
        let (plain, inner) = (OwnDirectory::plain(given.to_owned()), given.join(PRIVATE));
        let is_open = check_directory(given, &directory).is_err();
        let found = loop {
            match lstat(&inner) {
                Ok(found) => break found,
                // Later calls look for the files there, and refuse them.
                Err(Errno::NOENT) if !is_open || reads_only => return Ok(plain),
                Err(Errno::NOENT) => match mkdir(&inner, Mode::RWXU) {
                    Ok(()) => sync_names(given)?,
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(at(&inner, error.into())),
                },
                Err(error) => return Err(at(&inner, error.into())),
            }
        };
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        let is_ours = found.st_uid == own || reads_only && own == 0;
        if !is_ours || !is_directory {
            // If any user may make names, this name proves nothing.
            let (inner, user) = (inner.display(), found.st_uid);
            let why = format!(
                "{inner} belongs to user {user} and this process to user {own}, or is not a directory; any user may change {}",
                given.display()
            );
            return if is_open { Err(refusal(why)) } else { Ok(plain) };
        }
        if found.st_uid == own && !reads_only && found.st_mode & NOT_OWN != 0 {
            // Some systems give volumes to a group whenever they mount them.
            chmod(&inner, Mode::RWXU).map_err(|error| at(&inner, error.into()))?;
        }
        Ok(OwnDirectory { given: given.to_owned(), inner, user: found.st_uid })
    }

    /// Returns the path of a file. Refuses it if it is in the outer directory and should be in the
    /// inner one: it may be the right file, or any user's.
    pub(super) fn file(&self, name: &str) -> io::Result<PathBuf> {
        let (outer, inner) = (self.given.join(name), self.inner.join(name));
        if outer == inner {
            return Ok(inner);
        }
        // Any user may have put another directory in its place.
        if lstat(&self.inner)?.st_uid != self.user {
            return Err(refusal(format!("{} belongs to another user now", self.inner.display())));
        }
        if lstat(&outer).is_ok() {
            return Err(refusal(format!(
                "{} is in a directory that any user may change: if it is yours, move it into {}, or take that right away (chmod o-w)",
                outer.display(),
                self.inner.display()
            )));
        }
        Ok(inner)
    }
}

/// Makes changes of names in a directory durable.
#[allow(clippy::disallowed_methods, reason = "these are the runtime's files")]
pub(super) fn sync_names(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Refuses a directory in which any user may remove or replace the files of others.
pub(super) fn check_directory(path: &Path, directory: &Stat) -> io::Result<()> {
    if directory.st_mode & (OTHERS_WRITE | STICKY) == OTHERS_WRITE {
        let path = path.display();
        return Err(refusal(format!(
            "any user may change {path}: take that right away (chmod o-w)"
        )));
    }
    Ok(())
}

pub(super) fn refusal(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Returns an error that names its path.
pub(super) fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The refusal for a link whose target is missing: a new file or directory in its place would hide
/// the old one.
pub(super) fn leads_nowhere(path: &Path) -> io::Error {
    let path = path.display();
    let why = format!("{path} is a link whose target is missing: is its disk mounted?");
    io::Error::new(io::ErrorKind::NotFound, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, read_to_string, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    fn scrap(name: &str) -> PathBuf {
        let name = format!("thunderhead-trust-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        path
    }

    #[test]
    fn readable_own_files_are_closed_to_other_users_and_writable_ones_are_refused() {
        let scrap = scrap("rights");
        let path = scrap.join("file");
        write(&path, b"ours").unwrap();
        let mode = |mode| set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let rights = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        mode(0o644);
        open_trusted(&path, Access::Read).unwrap();
        assert_eq!(rights(), 0o644, "a reader changes nothing");
        for access in [Access::Write, Access::Make] {
            mode(0o644);
            open_trusted(&path, access).unwrap();
            assert_eq!(rights(), 0o600);
        }
        for access in [Access::Read, Access::Write, Access::Make] {
            mode(0o666);
            let refused = open_trusted(&path, access).unwrap_err().to_string();
            assert!(refused.contains("mode 666") && refused.contains("file"), "{refused}");
            assert_eq!(rights(), 0o666);
        }
        // A group of this process, as a volume may have.
        mode(0o660);
        open_trusted(&path, Access::Write).unwrap();
        assert_eq!(rights(), 0o600);
        // Only root gives files to other users.
        if chown(&path, None, Some(65534)).is_ok() {
            mode(0o660);
            assert!(open_trusted(&path, Access::Write).is_err());
        }
        std::fs::remove_dir_all(scrap).unwrap();
    }

    /// A process of root in the directory of a user.
    #[test]
    fn a_link_of_another_user_leads_to_files_of_that_user_alone() {
        let (theirs, ours) = (scrap("theirs"), scrap("ours"));
        let target = ours.join("passwd");
        write(&target, b"root").unwrap();
        set_permissions(&target, Permissions::from_mode(0o644)).unwrap();
        let link = theirs.join("storage.new");
        symlink(&target, &link).unwrap();
        let accesses = [Access::Read, Access::Write, Access::Make];
        if [&theirs, &link].into_iter().any(|it| lchown(it, Some(65534), Some(65534)).is_err()) {
            use std::io::Write;
            let mut out = std::io::stderr();
            writeln!(out, "links of another user are skipped: only root makes them").unwrap();
        } else {
            for access in accesses {
                let refused = open_trusted(&link, access).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
                assert!(find_trusted(&link).is_err());
            }
            let rights = std::fs::metadata(&target).unwrap().permissions().mode() & 0o7777;
            assert_eq!((read_to_string(&target).unwrap().as_str(), rights), ("root", 0o644));
            // A link to a link of root, and so to a file of root.
            let inner = ours.join("link");
            symlink(&target, &inner).unwrap();
            std::fs::remove_file(&link).unwrap();
            symlink(&inner, &link).unwrap();
            lchown(&link, Some(65534), Some(65534)).unwrap();
            assert!(open_trusted(&link, Access::Write).is_err());
            // A link to a file of the same user.
            let own = theirs.join("frames");
            write(&own, b"theirs").unwrap();
            chown(&own, Some(65534), Some(65534)).unwrap();
            std::fs::remove_file(&link).unwrap();
            symlink("frames", &link).unwrap();
            lchown(&link, Some(65534), Some(65534)).unwrap();
            open_trusted(&link, Access::Write).unwrap();
        }
        // A link of this process's user is followed, but never if the file may have to be made.
        let link = ours.join("own link");
        symlink(&target, &link).unwrap();
        open_trusted(&link, Access::Write).unwrap();
        let refused = open_trusted(&link, Access::Make).unwrap_err().to_string();
        assert!(refused.contains("is a link"), "{refused}");
        let around = ours.join("around");
        symlink("around", &around).unwrap();
        assert!(open_trusted(&around, Access::Write).is_err());
        [theirs, ours].into_iter().for_each(|it| std::fs::remove_dir_all(it).unwrap());
    }
}
