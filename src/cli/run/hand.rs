//! What the processes hand each other: descriptors and signal numbers, over a pair of sockets that keep message ends.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// The message that carries standard input to PID 1, and the one that carries the listeners out; signals are their own numbers.
pub(super) const DESCRIPTORS: u8 = 0;
/// Descriptors in one message.
const MOST: usize = 2;

pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Sends a byte and at most `MOST` descriptors. Never waits.
pub(super) fn send(socket: impl AsFd, byte: u8, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(&[byte])], &mut control, flags)?;
    Ok(())
}

/// The next message; `None` where the other side has gone.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let got = loop {
        let mut into = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(&socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    if got.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok(Some((byte[0], descriptors)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};

    use super::*;

    #[test]
    fn descriptors_and_bytes_arrive_in_order_and_the_end_is_seen() {
        let (a, b) = pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"handed").unwrap();
        file.rewind().unwrap();
        send(&a, DESCRIPTORS, &[file.as_fd()]).unwrap();
        send(&a, 15, &[]).unwrap();
        let (byte, mut descriptors) = receive(&b).unwrap().unwrap();
        assert_eq!((byte, descriptors.len()), (DESCRIPTORS, 1));
        let mut text = String::new();
        File::from(descriptors.remove(0))
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "handed");
        assert_eq!(
            receive(&b).unwrap().map(|(byte, fds)| (byte, fds.len())),
            Some((15, 0))
        );
        drop(a);
        assert!(receive(&b).unwrap().is_none());
    }
}
