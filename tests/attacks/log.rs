//! The log of the whole process, every event of it, so that a test can say what is not in it.

use std::sync::Mutex;

static LOG: Mutex<String> = Mutex::new(String::new());

/// The fixture id at whose log line the process panics: a fault in the middle of a call.
pub const PANICS: &str = "panics-in-its-task";

/// Every event of the process, at every level, goes into one text.
pub fn listen_to_the_log() {
    let _ = tracing::subscriber::set_global_default(Listener);
}

pub fn log() -> String {
    LOG.lock().unwrap().clone()
}

struct Listener;

struct Fields(String);

impl tracing::field::Visit for Fields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl tracing::Subscriber for Listener {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(event.metadata().target().to_owned());
        event.record(&mut fields);
        assert!(!fields.0.contains(PANICS), "a fault that a test made");
        LOG.lock().unwrap().push_str(&(fields.0 + "\n"));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
