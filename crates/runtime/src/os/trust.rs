//! Which files of this machine are used, and how they are opened.
//!
//! Other users may neither read nor change what clients store. A file is used only if
//!
//! - it is a regular one, in a directory in which not every user may replace it;
//! - it belongs to a user who may do anything here anyway: this process's, or root; for a process of root also the
//!   directory's owner;
//! - other users may not write to it. A group may, if this process is in it: some systems give mounted volumes to one.
//!
//! A file of this process's user that others may read is taken from them when it is opened for writing.
//!
//! Where every user may replace the files of a directory, as in volumes that Kubernetes mounts, they are in a directory
//! within it that is this process's alone: a [`Place`].
//!
//! A name may be a link to such a file, unless the file may have to be made. A link is followed only to files of the user
//! who made it. A link of this process's user or of root is followed to files of this process's user as well. Otherwise a
//! user could make a process of root write to any file, by a link to it.

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

/// The directory within one that any user may change.
const PRIVATE: &str = "thunderhead-private";

/// Links that may lead to each other.
const LINKS_MAX: usize = 8;

/// How often a file is opened again because its name changed meanwhile.
const TRIES_MAX: usize = 16;

/// Rights of the group and of others.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const NOT_OWN: u32 = 0o077;
/// Names in a directory are removed by their owners only.
const STICKY: u32 = 0o1000;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be read.
    Read,
    /// To be read and written.
    Write,
    /// The same; it is made if it is not there.
    Make,
}

/// Opens a file that may be trusted.
///
/// # Errors
/// For a file that may not, and as the operating system has them.
pub fn open_trusted(path: &Path, access: Access) -> io::Result<File> {
    open_with(path, access, OFlags::empty())
}

/// Whether there is a file that may be trusted.
///
/// # Errors
/// For one that may not, for a link that leads to nothing, and as the operating system has them.
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
        // The name may be another file's since.
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
struct Found {
    /// Without links.
    path: PathBuf,
    stat: Stat,
    is_linked: bool,
}

/// Looks for a file that may be trusted, without opening it: that may wait, for example for a pipe.
fn find(name: &Path) -> io::Result<Option<Found>> {
    let own = geteuid().as_raw();
    let mut path = name.to_owned();
    // To whose files the links so far may lead.
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
        // Root looks after the files of others where they are.
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
            return Ok(Some(Found { path, stat: found, is_linked: may_lead_to.is_some() }));
        }
        let target = readlinkat(&file, "", Vec::new())?;
        let leads_to_own = [own, 0].contains(&user) && trusted.contains(&own);
        may_lead_to = Some(if leads_to_own { vec![user, own] } else { vec![user] });
        path = above.join(OsStr::from_bytes(target.to_bytes()));
    }
    Err(at(name, Errno::LOOP.into()))
}

/// Refuses a file that other users may have written, and takes it from those who may read it.
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
pub(super) struct Place {
    /// The one that is named.
    given: PathBuf,
    /// The one with the files.
    pub(super) inner: PathBuf,
    /// To whom that belonged when it was found.
    user: u32,
}

impl Place {
    /// A directory as it is.
    pub(super) fn plain(path: PathBuf) -> Place {
        Place { inner: path.clone(), given: path, user: 0 }
    }

    /// A directory, or the one in it where any user may change that. Where files are only to be read, nothing is made, and
    /// root finds what any user has.
    pub(super) fn of(given: &Path, reads_only: bool) -> io::Result<Place> {
        let own = geteuid().as_raw();
        let directory = stat(given).map_err(|error| at(given, error.into()))?;
        if FileType::from_raw_mode(directory.st_mode) != FileType::Directory {
            return Err(at(given, Errno::NOTDIR.into()));
        }
        let (plain, inner) = (Place::plain(given.to_owned()), given.join(PRIVATE));
        let is_open = check_directory(given, &directory).is_err();
        let found = loop {
            match lstat(&inner) {
                Ok(found) => break found,
                // Files are looked for there, and refused.
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
            // Where any user may make names, this one means nothing.
            let (inner, user) = (inner.display(), found.st_uid);
            let why = format!(
                "{inner} belongs to user {user} and this process to user {own}, or is no directory; any user may change {}",
                given.display()
            );
            return if is_open { Err(refusal(why)) } else { Ok(plain) };
        }
        if found.st_uid == own && !reads_only && found.st_mode & NOT_OWN != 0 {
            // Volumes are given to a group whenever they are mounted.
            chmod(&inner, Mode::RWXU).map_err(|error| at(&inner, error.into()))?;
        }
        Ok(Place { given: given.to_owned(), inner, user: found.st_uid })
    }

    /// The path of a file. Refuses it where it is in the outer directory and should be in the inner one: it may be the
    /// one that is wanted, or any user's.
    pub(super) fn file(&self, name: &str) -> io::Result<PathBuf> {
        let (outer, inner) = (self.given.join(name), self.inner.join(name));
        if outer == inner {
            return Ok(inner);
        }
        // Any user may have put another one in its place.
        if lstat(&self.inner)?.st_uid != self.user {
            return Err(refusal(format!("{} is another user's now", self.inner.display())));
        }
        if lstat(&outer).is_ok() {
            return Err(refusal(format!(
                "{} is where any user may change it: if it is yours, move it into {}, or take that right away (chmod o-w)",
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

/// Refuses a directory in which any user may remove or replace files, whoever they belong to.
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

/// An error that names its path.
pub(super) fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The refusal for a link whose file or directory is not there: a new one in its place would hide the old one.
pub(super) fn leads_nowhere(path: &Path) -> io::Error {
    let path = path.display();
    let why = format!("{path} is a link to what is not there: is its disk mounted?");
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
    fn own_files_are_taken_from_other_users_and_those_that_others_may_write_are_refused() {
        let scrap = scrap("rights");
        let path = scrap.join("file");
        write(&path, b"ours").unwrap();
        let mode = |mode| set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let rights = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        mode(0o644);
        open_trusted(&path, Access::Read).unwrap();
        assert_eq!(rights(), 0o644, "who reads changes nothing");
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
        // A group of this process, as that of a volume may be.
        mode(0o660);
        open_trusted(&path, Access::Write).unwrap();
        assert_eq!(rights(), 0o600);
        // Only root gives files to others.
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
            // To a link of root, and by that to a file of root.
            let inner = ours.join("link");
            symlink(&target, &inner).unwrap();
            std::fs::remove_file(&link).unwrap();
            symlink(&inner, &link).unwrap();
            lchown(&link, Some(65534), Some(65534)).unwrap();
            assert!(open_trusted(&link, Access::Write).is_err());
            // To a file of theirs.
            let own = theirs.join("frames");
            write(&own, b"theirs").unwrap();
            chown(&own, Some(65534), Some(65534)).unwrap();
            std::fs::remove_file(&link).unwrap();
            symlink("frames", &link).unwrap();
            lchown(&link, Some(65534), Some(65534)).unwrap();
            open_trusted(&link, Access::Write).unwrap();
        }
        // A link of this process's user is followed, but never where the file may have to be made.
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
