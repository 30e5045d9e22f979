//! One call with its host: a connection, the request out and the head in, both at the same time, at most once.
//!
//! 1. A kept connection, looked at; else a dial.
//! 2. Write, and read while writing: a host may answer before it has read all, and neither side may wait for the other.
//! 3. A kept connection that took no byte is replaced once. After a byte, never: the host may have acted on it.
//! 4. The host's head: interim answers are skipped, a bounded number of them; then the answer, or why there is none.
//!
//! A host that closes or resets before its head is complete is `host_malformed`. Time: no progress in writing for `limits.idle`, or no head
//! `limits.first_byte` after the last byte was taken, is `host_timeout`.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;
use http::Method;

use super::account::Account;
use super::head::{Bad, Found, Head, Scan};
use super::kept::Conn;
use super::model::Sniff;
use super::relay::{LONGEST_WAIT, Read};
use super::request::{self, Uplink};
use super::{Answer, AnswerBody, Failed, Inner, dial};
use crate::admit::Departure;
use crate::policy::Limits;
use crate::terms::Reason;

/// Interim answers to one request.
pub(super) const MOST_INTERIM: usize = 8;
/// Expected bytes of a head and a small body.
const FIRST_READ: u64 = 8 * 1024;

/// Why a connection gave no answer.
pub(super) enum Stop {
    /// It took no byte.
    Unwritten,
    /// The head is bad.
    Bad(Bad),
    /// It ended before its head was complete.
    Ended,
    /// Nothing came in time.
    Late,
}

/// Runs a call to its answer's head. Closes the account where there is none.
pub(super) async fn exchange(
    inner: &Arc<Inner>,
    departure: Departure,
    mut account: Account,
) -> Result<Answer, Failed> {
    let found = run(inner, &departure, &mut account).await;
    match found {
        Ok(live) => Ok(answer(inner, departure, account, live)),
        Err(failed) => {
            account.close(Some(failed.reason.code()));
            Err(failed)
        }
    }
}

/// A connection whose answer begins.
pub(super) struct Live {
    conn: Conn,
    head: Box<Head>,
    uplink: Option<Uplink>,
    keep: bool,
}

async fn run(
    inner: &Arc<Inner>,
    departure: &Departure,
    account: &mut Account,
) -> Result<Live, Failed> {
    let limits = &departure.policy.limits;
    let host = &departure.host;
    let head = request::head(departure)?;
    let mut uplink = Uplink::new(head, departure.body.clone());
    // Step 1.
    if let Some(mut conn) = inner.kept.take(host) {
        account.peer = Some(conn.peer);
        match talk(&mut conn, &mut uplink, &departure.method, limits, account).await {
            Ok((head, clean)) => return Ok(live(conn, head, uplink, clean)),
            // Step 3.
            Err(Stop::Unwritten) => {
                uplink = uplink.again();
                account.peer = None;
            }
            Err(stop) => return Err(failed(stop, account)),
        }
    }
    let mut conn = dial::dial(inner, &departure.policy, host, account).await?;
    // What a host says before it was asked is the answer of no call, also where it says it slowly.
    let most = limits.connect.min(LONGEST_WAIT);
    let quiet = tokio::time::timeout(most, conn.wire.quiet_at_first());
    if !quiet.await.unwrap_or(false) {
        return Err(failed(Stop::Unwritten, account));
    }
    match talk(&mut conn, &mut uplink, &departure.method, limits, account).await {
        Ok((head, clean)) => Ok(live(conn, head, uplink, clean)),
        Err(stop) => Err(failed(stop, account)),
    }
}

pub(super) fn live(conn: Conn, head: Box<Head>, uplink: Uplink, clean: bool) -> Live {
    Live {
        keep: head.keep && clean,
        conn,
        head,
        uplink: (!uplink.done()).then_some(uplink),
    }
}

/// Steps 2 and 4. With the head comes whether the request had been taken whole before the first byte of an answer was read.
pub(super) async fn talk(
    conn: &mut Conn,
    uplink: &mut Uplink,
    method: &Method,
    limits: &Limits,
    account: &mut Account,
) -> Result<(Box<Head>, bool), Stop> {
    let mut talk = Talk {
        scan: Scan::default(),
        interim: 0,
        clean: true,
        waiting: false,
    };
    poll_fn(|cx| talk.poll(cx, conn, uplink, method, limits, account)).await
}

struct Talk {
    scan: Scan,
    interim: usize,
    clean: bool,
    waiting: bool,
}

impl Talk {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut Conn,
        uplink: &mut Uplink,
        method: &Method,
        limits: &Limits,
        account: &mut Account,
    ) -> Poll<Result<(Box<Head>, bool), Stop>> {
        if !uplink.done() && !uplink.broken() {
            let (written, moved) = uplink.poll(&mut conn.wire, cx);
            account.sent(uplink);
            if moved || written.is_ready() {
                self.waiting = false;
            }
            if uplink.broken() && !uplink.begun() {
                return Poll::Ready(Err(Stop::Unwritten));
            }
        }
        loop {
            match conn.poll_fill(cx, FIRST_READ) {
                // Bytes, an end or an error before a byte of the call was taken belong to no answer of this call.
                Poll::Ready(Read::More | Read::End | Read::Broken) if !uplink.begun() => {
                    return Poll::Ready(Err(Stop::Unwritten));
                }
                Poll::Ready(Read::More) => self.clean &= uplink.done(),
                Poll::Ready(Read::End | Read::Broken) => return Poll::Ready(Err(Stop::Ended)),
                Poll::Pending => break,
            }
            if let Some(head) = self.head(conn, method)? {
                return Poll::Ready(Ok((head, self.clean)));
            }
        }
        let limit = if uplink.done() || uplink.broken() {
            limits.first_byte
        } else {
            limits.idle
        };
        conn.poll_wait(cx, &mut self.waiting, limit)
            .map(|()| Err(Stop::Late))
    }

    /// The final head, where it is there whole.
    fn head(&mut self, conn: &mut Conn, method: &Method) -> Result<Option<Box<Head>>, Stop> {
        while !conn.buf.is_empty() {
            match self.scan.read(&conn.buf, method).map_err(Stop::Bad)? {
                Found::Partial => return Ok(None),
                Found::Interim(len) => {
                    conn.buf.advance(len);
                    self.interim += 1;
                    if self.interim > MOST_INTERIM {
                        return Err(Stop::Bad(Bad::Malformed));
                    }
                }
                Found::Final(len, head) => {
                    conn.buf.advance(len);
                    return Ok(Some(head));
                }
            }
        }
        Ok(None)
    }
}

pub(super) fn failed(stop: Stop, account: &mut Account) -> Failed {
    match stop {
        Stop::Unwritten => Failed::new(
            Reason::ConnectFailed,
            "the host closed the connection, or spoke, before a byte was sent",
        ),
        Stop::Bad(Bad::Redirect(status)) => {
            account.status = Some(status);
            Failed::new(
                Reason::RedirectRefused,
                "the host answered with a redirect, which leafgate does not follow; put the host's real base_url in the policy",
            )
        }
        Stop::Bad(Bad::Malformed) => Failed::new(
            Reason::HostMalformed,
            "the head of the host's answer is not clean HTTP/1.1",
        ),
        Stop::Ended => Failed::new(
            Reason::HostMalformed,
            "the host closed the connection before the head of its answer was complete; the call was not sent again",
        ),
        Stop::Late => Failed::new(
            Reason::HostTimeout,
            "the host did not answer within the policy's limits; the call was not sent again",
        ),
    }
}

pub(super) fn answer(
    inner: &Arc<Inner>,
    departure: Departure,
    mut account: Account,
    live: Live,
) -> Answer {
    let mut head = *live.head;
    head.keep_back(&departure.host.credential);
    account.begin_answer(head.status.as_u16(), Sniff::of(&head.headers));
    let mut body = AnswerBody {
        inner: inner.clone(),
        idle: departure.policy.limits.idle,
        host: departure.host,
        conn: Some(live.conn),
        framing: head.framing,
        uplink: live.uplink,
        keep: live.keep,
        waiting: false,
        account,
    };
    // An answer without a body is over already, whether or not anybody polls it.
    if body.framing.done() {
        body.finish(None);
    }
    Answer {
        status: head.status,
        headers: head.headers,
        body,
    }
}
