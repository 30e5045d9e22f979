//! The loopback interface of a new network namespace, brought up through a route socket: no ioctl, so no `unsafe`.

use std::io;
use std::net::IpAddr;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

// linux/netlink.h, linux/rtnetlink.h, linux/if.h, linux/if_addr.h
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
/// The first interface of every network namespace.
const LOOPBACK: u32 = 1;

/// Brings the interface up; its own addresses come with it.
pub(super) fn up() -> io::Result<()> {
    let mut body = vec![0; 4]; // ifinfomsg: family and type, unspecified
    body.extend(LOOPBACK.to_ne_bytes());
    body.extend(IFF_UP.to_ne_bytes());
    body.extend(IFF_UP.to_ne_bytes());
    ask(&message(RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, &body))
}

/// Gives it an address more, of one host.
pub(super) fn add(address: IpAddr) -> io::Result<()> {
    let (family, octets) = match address {
        IpAddr::V4(ip) => (AddressFamily::INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AddressFamily::INET6, ip.octets().to_vec()),
    };
    // ifaddrmsg: family, prefix length in bits, flags, scope.
    let family = u8::try_from(family.as_raw()).map_err(io::Error::other)?;
    let bits = u8::try_from(octets.len() * 8).map_err(io::Error::other)?;
    let mut body = vec![family, bits, IFA_F_NODAD, 0];
    body.extend(LOOPBACK.to_ne_bytes());
    for kind in [IFA_LOCAL, IFA_ADDRESS] {
        let length = u16::try_from(4 + octets.len()).map_err(io::Error::other)?;
        body.extend(length.to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(&octets);
    }
    let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    ask(&message(RTM_NEWADDR, flags, &body))
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(1u32.to_ne_bytes()); // sequence
    message.extend(0u32.to_ne_bytes()); // the kernel fills the port in
    message.extend(body);
    message
}

fn ask(message: &[u8]) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Not connected, so it goes to port 0: the kernel.
    rustix::net::send(&socket, message, SendFlags::empty())?;
    let mut answer = [0; 512];
    let (got, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    verdict(answer.get(..got).unwrap_or_default())
}

/// The acknowledgement: an error message whose number is zero.
fn verdict(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|two| two.try_into().ok());
    let number = answer.get(16..20).and_then(|four| four.try_into().ok());
    match (kind.map(u16::from_ne_bytes), number.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(number)) => {
            Err(io::Error::from_raw_os_error(number.saturating_neg()))
        }
        _ => Err(io::Error::other("the kernel's answer was not understood")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_an_acknowledgement_only_where_its_number_is_zero() {
        let answer = |number: i32| message(NLMSG_ERROR, 0, &number.to_ne_bytes());
        assert!(verdict(&answer(0)).is_ok());
        assert_eq!(verdict(&answer(-1)).unwrap_err().raw_os_error(), Some(1));
        assert!(verdict(&message(3, 0, &0i32.to_ne_bytes())).is_err());
        assert!(verdict(&answer(0)[..18]).is_err());
        assert!(verdict(&[]).is_err());
    }
}
