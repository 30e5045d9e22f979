//! `[intercept]`: the authority that vouches for the policy's hosts in a tunnel.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::model::{Host, Intercept};
use super::read::{Table, Value};
use super::secrets::{PEM_MOST, is_closed, read_file};
use crate::certs::{Authority, Name, Unfit};
use crate::terms::HostPin;

/// Reads both files, and holds them against the hosts that have TLS.
pub(super) fn intercept(
    root: &Table<'_>,
    hosts: &BTreeMap<HostPin, Arc<Host>>,
) -> Option<Intercept> {
    let table = root.get("intercept")?.table(&["ca", "key"])?;
    let (ca, key) = (table.need("ca"), table.need("key"));
    if let Some(key) = &key
        && key.context().closed
        && key.path().is_some_and(|path| is_closed(key, &path))
    {
        return None;
    }
    let ca = ca.and_then(|value| Some((file(&value)?, value)));
    let key = key.and_then(|value| Some((private_file(&value)?, value)));
    let ((ca_path, ca_pem), ca) = ca?;
    let ((key_path, key_pem), key) = key?;
    let names: Vec<Name> = hosts
        .values()
        .filter(|host| host.base.tls)
        .map(|host| Name::of(&host.base.host))
        .collect();
    if names.is_empty() {
        table.fault("no host has an https base_url, so there is nothing to intercept; remove it");
        return None;
    }
    match Authority::read(&ca_pem, &key_pem, &names, SystemTime::now()) {
        Ok(authority) => Some(Intercept {
            ca: ca_path,
            key: key_path,
            authority: Arc::new(authority),
        }),
        Err(Unfit::Ca(what)) => {
            ca.fault(format!("the file {what}"));
            None
        }
        Err(Unfit::Key(what)) => {
            key.fault(format!("the file {what}"));
            None
        }
    }
}

type Read = (PathBuf, Vec<u8>);

fn file(value: &Value<'_>) -> Option<Read> {
    let path = value.path()?;
    match read_file(&path, PEM_MOST) {
        Ok(bytes) => Some((path, bytes)),
        Err(why) => {
            value.fault(format!(
                "the file {why}; leafgate certs init makes it, with its key"
            ));
            None
        }
    }
}

/// A file that its owner alone can read and write.
fn private_file(value: &Value<'_>) -> Option<Read> {
    let read = file(value)?;
    if let Some(mode) = open_to_others(&read.0) {
        value.fault(format!(
            "the file has mode {mode:04o}: its key must be its owner's alone; chmod 0600 it, and make a new one where others may have read it"
        ));
        return None;
    }
    Some(read)
}

fn open_to_others(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    // 0400 is tighter still.
    (mode != 0o600 && mode != 0o400).then_some(mode)
}
