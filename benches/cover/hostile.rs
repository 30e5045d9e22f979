//! Bodies made to be slow to judge, against fixtures and glue that help them. The cost of a byte must not grow with the body.

use std::hint::black_box;

use leafgate::fixture::{Fixture, Format};

use crate::{host, load, make, on_cpu, texts};

/// One thing to try: a name, and a body's content of about so many bytes.
type Case<'a> = (&'a str, &'a dyn Fn(usize) -> String);

pub(crate) fn all() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let rule = "=".repeat(80);
    let glue = [
        rule.as_str(),
        "============",
        "=",
        "==",
        "\n",
        "\n\n",
        "\n\n\n",
        "    ",
        "Question: ",
        "\n\nAnswer: ",
        ") ",
    ];
    let repeat = |what: &str, len: usize| what.repeat(len / what.len() + 1);

    println!("hostile: a fixture of one letter, 10 MB");
    make(dir.path(), &"a".repeat(10_000_000), Format::Text, &glue);
    let fixture = load(dir.path());
    tell(
        &fixture,
        &[
            ("the letter", &|len| "a".repeat(len)),
            ("runs that break off", &|len| {
                repeat("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", len)
            }),
            ("runs with glue between", &|len| {
                repeat("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n==", len)
            }),
            ("one character less than a run", &|len| {
                repeat("aaaaaaaaaaaaaaaaaaab", len)
            }),
        ],
    );

    println!("hostile: a fixture of two letters at random, 10 MB");
    make(
        dir.path(),
        &texts::two_letters(10_000_000, texts::SEED),
        Format::Text,
        &glue,
    );
    let fixture = load(dir.path());
    tell(
        &fixture,
        &[
            ("two letters, other order", &|len| {
                texts::two_letters(len, 77)
            }),
            ("the same with breaks", &|len| {
                texts::two_letters(len, 78).replace("abab", "ab\nab")
            }),
        ],
    );

    println!("hostile: single words, JSON Lines, 10 MB");
    make(dir.path(), &texts::words(10_000_000), Format::Jsonl, &glue);
    let fixture = load(dir.path());
    let words: Vec<String> = texts::text(100_000)
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let word = words.iter().max_by_key(|word| word.len()).unwrap();
    tell(
        &fixture,
        &[
            ("a rule of glue", &|len| "=".repeat(len)),
            ("line ends", &|len| "\n".repeat(len)),
            ("white space", &|len| repeat(" \t \u{3000}", len)),
            ("words and short glue", &|len| {
                repeat(&format!("{word}\n"), len)
            }),
            ("words and long glue", &|len| {
                repeat(&format!("{word}============"), len)
            }),
            ("other words and glue", &|len| {
                let mut out = String::new();
                for word in words.iter().cycle() {
                    if out.len() >= len {
                        break;
                    }
                    out.push_str(word);
                    out.push('\n');
                }
                out
            }),
            ("foreign text", &|len| {
                repeat("The quick brown fox jumps over the lazy dog. ", len)
            }),
            ("foreign and glue by turns", &|len| repeat("x=", len)),
        ],
    );
    shapes(&fixture, word);
}

/// Contents at 1 MiB and 16 MiB.
fn tell(fixture: &Fixture, cases: &[Case<'_>]) {
    for (name, content) in cases {
        measure(fixture, name, &|len| {
            serde_json::json!({"model": "tiny", "messages": [{"role": "user", "content": content(len)}]})
                .to_string()
        });
    }
}

/// Bodies whose form is the burden.
fn shapes(fixture: &Fixture, word: &str) {
    let quoted = format!("\"{word}\"");
    let many = |item: &str, len: usize| vec![item; len / (item.len() + 1)].join(",");
    measure(fixture, "many short strings", &|len| {
        format!(r#"{{"model":"tiny","stop":[{}]}}"#, many(&quoted, len))
    });
    measure(fixture, "many empty messages", &|len| {
        format!(r#"{{"model":"tiny","messages":[{}]}}"#, many("{}", len))
    });
    measure(fixture, "escapes", &|len| {
        let text = word
            .chars()
            .map(|c| format!("\\u{:04x}", u32::from(c)))
            .collect::<String>()
            + "\\n";
        format!(
            r#"{{"model":"tiny","user":"{}"}}"#,
            text.repeat(len / text.len())
        )
    });
    measure(fixture, "deep nesting", &|len| {
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        format!(
            r#"{{"model":"tiny","tools":[{{"type":"function","function":{{"parameters":{{"enum":[{}]}}}}}}]}}"#,
            many(&deep, len)
        )
    });
    measure(fixture, "white space between tokens", &|len| {
        format!(r#"{{"model":{}"tiny"}}"#, " ".repeat(len))
    });
}

fn measure(fixture: &Fixture, name: &str, body: &dyn Fn(usize) -> String) {
    let host = host();
    let mut each = Vec::new();
    for len in [1 << 20, 16 << 20] {
        let body = body(len).into_bytes();
        let start = on_cpu();
        let verdict = fixture.bind(&host, "/chat/completions", &body, &[0; 32]);
        let took = (on_cpu() - start).as_secs_f64();
        let bound = match black_box(verdict) {
            Ok(_) => "bound",
            Err(_) => "refused",
        };
        each.push((took / body.len() as f64 * 1e9, took * 1e3, bound));
    }
    println!(
        "  {name}: {:.1} ns a byte at 1 MiB, {:.1} at 16 MiB ({:.0} ms, {})",
        each[0].0, each[1].0, each[1].1, each[1].2
    );
}
