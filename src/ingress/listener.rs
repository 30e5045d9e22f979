//! The proxy's listener: a TCP port, or a Unix socket that its owner alone can open (contract, section 7, `listen.proxy`).
//!
//! Promises: nobody can connect to the socket before its mode is 0600; a file that stands at its path is replaced only where it is a socket that
//! nobody listens on; who comes by the socket is known by the kernel's word (`SO_PEERCRED`), not the client's. The file goes with the listener.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use crate::policy::ProxyAddress;

/// Clients that may wait until they are taken; the kernel has its own bound besides (`net.core.somaxconn`).
const WAITING_CLIENTS: u16 = 4096;

/// What a socket on the file system is known by.
type Inode = (u64, u64);

/// A bound listener.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, Left),
}

/// One client.
#[derive(Debug)]
pub(super) enum Accepted {
    /// With the address it came to.
    Tcp(TcpStream),
    /// With its user.
    Unix(UnixStream, u32),
}

impl Listener {
    pub(super) fn bind(address: &ProxyAddress) -> io::Result<Listener> {
        match address {
            ProxyAddress::Tcp(address) => Ok(Listener::Tcp(listening(*address)?)),
            ProxyAddress::Unix(path) => {
                let (listener, left) = bind_unix(path)?;
                Ok(Listener::Unix(listener, left))
            }
        }
    }

    /// Where it listens, its port chosen.
    pub(super) fn bound(&self) -> io::Result<ProxyAddress> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(ProxyAddress::Tcp),
            Listener::Unix(_, left) => Ok(ProxyAddress::Unix(left.path.clone())),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok(Accepted::Tcp(stream))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                // The record names the user: one that is not known is not served.
                let uid = stream.peer_cred()?.uid();
                Ok(Accepted::Unix(stream, uid))
            }
        }
    }
}

/// The address that a connection came to, where the listener is bound to every one.
pub(super) fn came_to(stream: &TcpStream, bound: &ProxyAddress) -> Option<SocketAddr> {
    let everywhere = bound.tcp().is_some_and(|bound| bound.ip().is_unspecified());
    everywhere.then(|| stream.local_addr().ok()).flatten()
}

/// The socket's file, taken away when the listener ends, where it is still this listener's.
#[derive(Debug)]
pub(super) struct Left {
    path: PathBuf,
    inode: Inode,
}

impl Drop for Left {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> io::Result<Inode> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Binds a TCP address. More clients may wait with the kernel than the 128 of the library: one whom it turns away tries again after
/// a second, then two, then four.
fn listening(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_CLIENTS.into())
}

fn bind_unix(path: &Path) -> io::Result<(UnixListener, Left)> {
    make_room(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let left = Left {
        path: path.to_owned(),
        inode: inode(path)?,
    };
    // Before `listen` the kernel refuses every connection, so the mode is right before anybody can come.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(WAITING_CLIENTS.into())?;
    Ok((UnixListener::from_std(socket.into())?, left))
}

/// Takes away what a leafgate that was killed left behind, and nothing else.
fn make_room(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "something that is no socket stands there",
        ));
    }
    if somebody_listens(path)? {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process listens there",
        ));
    }
    fs::remove_file(path)
}

/// Asks the socket at this path, which is on this machine. What is accepted is closed at once, with no byte.
fn somebody_listens(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        // It has more who wait than it takes.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as Std;

    use super::*;

    fn bind(path: &Path) -> io::Result<Left> {
        bind_unix(path).map(|(_, left)| left)
    }

    #[tokio::test]
    async fn only_a_socket_that_nobody_listens_on_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gate.sock");
        let (listener, left) = bind_unix(&path).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&path), 0o600);
        // Somebody listens.
        let taken = bind(&path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop((listener, left));
        assert!(!path.exists(), "the file goes with its listener");
        // Left behind by a process that was killed.
        drop(Std::bind(&path).unwrap());
        assert!(path.exists());
        let (listener, left) = bind_unix(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        // Another socket stands at the path by now: it is not this one's to take away.
        fs::remove_file(&path).unwrap();
        let other = Std::bind(&path).unwrap();
        drop((listener, left));
        assert!(path.exists());
        drop(other);
        fs::remove_file(&path).unwrap();
        // Another kind of file, and a link to a socket that nobody listens on.
        fs::write(&path, "mine").unwrap();
        assert_eq!(
            bind(&path).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        let dead = dir.path().join("dead.sock");
        drop(Std::bind(&dead).unwrap());
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&dead, &path).unwrap();
        assert_eq!(
            bind(&path).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert!(path.is_symlink() && dead.exists());
    }
}
