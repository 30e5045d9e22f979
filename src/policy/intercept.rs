//! `[intercept]`: the authority that vouches for the policy's hosts in a tunnel.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
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

/// A file that its owner alone can read and write, who is somebody that can have the key.
fn private_file(value: &Value<'_>) -> Option<Read> {
    let read = file(value)?;
    let facts = std::fs::metadata(&read.0).ok();
    // Whoever owns the policy decides which file is the key: root may look at the policy of the user that runs leafgate.
    let policy = std::fs::metadata(&value.context().file).ok();
    let mine = [
        Some(rustix::process::geteuid().as_raw()),
        policy.map(|policy| policy.uid()),
    ];
    if let Some(what) = facts.and_then(|facts| for_others(&facts, &mine)) {
        value.fault(format!("the file {what}, and make a new one with leafgate certs init where others may have read it"));
        return None;
    }
    Some(read)
}

/// What lets others than root and `mine` read a key, and what to do first.
fn for_others(facts: &Metadata, mine: &[Option<u32>]) -> Option<String> {
    let (mode, owner) = (facts.mode() & 0o7777, facts.uid());
    // 0400 is tighter still.
    if mode != 0o600 && mode != 0o400 {
        return Some(format!(
            "has mode {mode:04o}: its key must be its owner's alone; chmod 0600 it"
        ));
    }
    (owner != 0 && !mine.contains(&Some(owner))).then(|| {
        format!("belongs to user {owner}, who is not the one that runs leafgate: give it to that one (chown)")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_its_owners_and_the_owner_one_of_ours() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let other = me + 1;
        let found = |mine: &[Option<u32>]| {
            for_others(&file.as_file().metadata().unwrap(), mine).unwrap_or_default()
        };
        assert_eq!(found(&[Some(me), None]), "");
        assert_eq!(found(&[Some(other), Some(me)]), "", "the policy's owner");
        let strange = found(&[Some(other), None]);
        // Root's files are root's for everybody.
        assert_eq!(strange.contains("(chown)"), me != 0, "{strange}");
        file.as_file()
            .set_permissions(std::fs::Permissions::from_mode(0o640))
            .unwrap();
        assert!(found(&[Some(me), None]).contains("mode 0640"));
        if me == 0 {
            file.as_file()
                .set_permissions(std::fs::Permissions::from_mode(0o600))
                .unwrap();
            std::os::unix::fs::chown(file.path(), Some(other), None).unwrap();
            assert!(found(&[Some(me), None]).contains("belongs to user 1"));
            assert_eq!(found(&[Some(me), Some(other)]), "");
        }
    }
}
