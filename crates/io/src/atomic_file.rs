use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, IoSlice, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Links that are followed before they are taken for a circle, as on Linux.
const MOST_LINKS: usize = 40;
/// What a plain create asks for; the process' mask takes its part.
const PLAIN_MODE: u32 = 0o666;
/// Nobody else may open the new file before it has the old one's permissions.
const PRIVATE_MODE: u32 = 0o600;
/// The permissions that are taken over from a file: none that act for its owner.
const PERMISSIONS: u32 = 0o777;

/// Bytes that are written before the system is asked to begin with them: the disk then works while the rest is written, and syncing finds less to
/// do.
const BEGUN_AT_ONCE: u64 = 16 << 20;

/// A file that takes the place of another at once and as a whole, when it is [committed](Self::commit).
///
/// ```text
/// create ─> .name.XXXXXX.tmp <─ writes      name: the old file, whole
/// commit ─> sync ─> rename ─> sync folder   name: the new file, whole
/// ```
///
/// Whoever has the old file open or mapped keeps it as it was. Where `path` is a link, what it points to is replaced. The new file has the
/// permissions of the old one, and its owner where the process may give it that, or those of a plain create. Dropped without a commit, it leaves
/// nothing behind; a killed process leaves the file beside, never a half file in the other's place.
///
/// What is no regular file (a pipe, a terminal, `/dev/null`) has no other to replace, and is written to directly.
///
/// Not promised: other hard links to the old file, which go on to name that one, and its extended attributes.
#[derive(Debug)]
pub struct AtomicFile(Kind);

#[derive(Debug)]
enum Kind {
    Beside {
        new: NamedTempFile,
        path: PathBuf,
        /// Bytes so far.
        written: u64,
        /// Those that the system was asked to begin with.
        begun: u64,
    },
    Direct(File),
}

impl AtomicFile {
    /// Begins the file that is to be at `path`.
    ///
    /// # Errors
    /// A file there that may not be written to, a folder there; a folder around it in which no file can be made.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        // Asks for what a plain write would need.
        let old = match OpenOptions::new().write(true).open(path) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (path, old) = match old {
            Some(old) => {
                let metadata = old.metadata()?;
                if !metadata.is_file() {
                    return Ok(Self(Kind::Direct(old)));
                }
                (fs::canonicalize(path)?, Some(metadata))
            }
            None => (missing_file(path)?, None),
        };
        let name = path.file_name().unwrap_or_default();
        let mut prefix = std::ffi::OsString::from(".");
        // A name may have 255 bytes, and what is added needs some of them.
        if name.len() < 200 {
            prefix.push(name);
        }
        prefix.push(".");
        let mode = old.as_ref().map_or(PLAIN_MODE, |_| PRIVATE_MODE);
        let new = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".tmp")
            // An error that is the system's, without the name of a file that nobody asked for.
            .make_in(folder(&path), |path| {
                let mut options = OpenOptions::new();
                options.write(true).create_new(true).mode(mode);
                options.open(path)
            })?;
        if let Some(old) = old {
            let own = new.as_file().metadata()?;
            if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
                // Only a privileged process may give files away; another's becomes its own.
                let _: io::Result<()> = fchown(new.as_file(), Some(old.uid()), Some(old.gid()));
            }
            let mode = old.permissions().mode() & PERMISSIONS;
            new.as_file()
                .set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(Self(Kind::Beside {
            new,
            path,
            written: 0,
            begun: 0,
        }))
    }

    /// Puts the file in its place, and returns when it would outlast a power failure.
    ///
    /// # Errors
    /// What the system says. The file may have taken its place only if syncing the folder failed.
    pub fn commit(self) -> io::Result<()> {
        match self.0 {
            Kind::Direct(_) => Ok(()),
            Kind::Beside { new, path, .. } => {
                new.as_file().sync_all()?;
                new.persist(&path)?;
                match File::open(folder(&path))?.sync_all() {
                    // A file system that cannot sync folders.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                    result => result,
                }
            }
        }
    }

    /// Notes that so many bytes were written.
    fn advance(&mut self, bytes: usize) {
        if let Kind::Beside {
            new,
            written,
            begun,
            ..
        } = &mut self.0
        {
            *written = written.saturating_add(bytes as u64);
            let len = written.saturating_sub(*begun);
            if len >= BEGUN_AT_ONCE {
                begin_writing(new.as_file(), *begun, len);
                *begun = *written;
            }
        }
    }

    fn file(&mut self) -> &mut File {
        match &mut self.0 {
            Kind::Beside { new, .. } => new.as_file_mut(),
            Kind::Direct(file) => file,
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let at_once = bytes.len().min(BEGUN_AT_ONCE as usize);
        let written = self.file().write(bytes.get(..at_once).unwrap_or(bytes))?;
        self.advance(written);
        Ok(written)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut len = 0_usize;
        let at_once = parts.iter().take_while(|part| {
            len = len.saturating_add(part.len());
            len <= BEGUN_AT_ONCE as usize
        });
        let at_once = at_once.count();
        if at_once == 0 {
            // The first part alone is more.
            return self.write(parts.first().map_or(&[], |part| part));
        }
        let written = self
            .file()
            .write_vectored(parts.get(..at_once).unwrap_or(parts))?;
        self.advance(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

/// Has the disk begin with `len` bytes from `offset` on. A wish: what comes of them is for the sync to say.
fn begin_writing(file: &File, offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
        return;
    };
    // SAFETY: the descriptor is open as long as `file`; no memory is involved.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Where a plain create would make the file: at the end of the links that begin at `path`, if it is one.
fn missing_file(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(link) = fs::read_link(&path) else {
            return Ok(path);
        };
        path = folder(&path).join(link);
    }
    Err(io::ErrorKind::NotFound.into())
}
