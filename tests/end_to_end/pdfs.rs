//! PDFs, as a model reads them: of the workspace and of the web, by the real `pdftotext`, confined.

use std::{fmt::Write as _, fs, process::Command};

use serde_json::json;

use crate::{
    harness::{Daemon, model_server::ModelServer, unique},
    web::Site,
};

/// A document with a page for each stream of its operators.
fn document(pages: &[String]) -> String {
    let kids: String = (0..pages.len()).map(|page| format!("{} 0 R ", 3 + 2 * page)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Count {} /Kids [{kids}] >>", pages.len()),
    ];
    for (page, stream) in pages.iter().enumerate() {
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Contents {} 0 R /Resources << /Font << /F1 \
             << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
            4 + 2 * page
        ));
        objects.push(format!("<< /Length {} >>\nstream\n{stream}\nendstream", stream.len()));
    }
    let (mut text, mut table) = ("%PDF-1.4\n".to_owned(), "0000000000 65535 f \n".to_owned());
    for (object, number) in objects.iter().zip(1..) {
        let _ = writeln!(table, "{:010} 00000 n ", text.len());
        let _ = write!(text, "{number} 0 obj\n{object}\nendobj\n");
    }
    let (start, size) = (text.len(), objects.len() + 1);
    text + &format!(
        "xref\n0 {size}\n{table}trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"
    )
}

/// The same with a lock that no password opens: what a password is compared with is made up.
fn locked(document: &str) -> String {
    let made_up = "61".repeat(32);
    let lock = format!(
        "/ID [<{made_up}> <{made_up}>] /Encrypt << /Filter /Standard /V 1 /R 2 /O <{made_up}> /U <{made_up}> /P -4 >>"
    );
    document.replace("/Root 1 0 R", &format!("/Root 1 0 R {lock}"))
}

/// Operators that show a line.
fn line(text: &str) -> String {
    format!("BT /F1 12 Tf 20 200 Td ({text}) Tj ET")
}

/// Whether PDFs can be read here; else it says so.
fn can_read() -> bool {
    let there = Command::new("pdftotext").arg("-v").output().is_ok();
    if !there {
        println!("skipped: there is no `pdftotext`, so no PDF can be read");
    }
    there
}

struct Scene {
    _model: ModelServer,
    daemon: Daemon,
}

fn scene(more: &str) -> Scene {
    let model = ModelServer::obedient();
    let daemon = Daemon::start(&(model.config() + more));
    Scene { _model: model, daemon }
}

impl Scene {
    /// What a file with this content is read as.
    fn reads(&self, content: &str) -> String {
        fs::write(self.daemon.path().join("workspace/paper.pdf"), content).expect("a file");
        self.says(r#"files_read {"path": "paper.pdf"}"#)
    }

    fn says(&self, message: &str) -> String {
        let turn = self.daemon.turn(&unique(), message);
        turn["content"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn the_text_of_a_file_is_read_page_by_page_and_what_cannot_be_read_is_told() {
    if !can_read() {
        return;
    }
    let scene = scene("");
    let paper = document(&[line("The tide turns at six."), line("Boats wait for it.")]);
    let said = scene.reads(&paper);
    assert!(
        said.contains("[page 1 of 2]\nThe tide turns at six.")
            && said.contains("[page 2 of 2]\nBoats wait for it."),
        "{said}\n{}",
        scene.daemon.log()
    );
    let part = scene.says(r#"files_read {"path": "paper.pdf", "offset": 4, "limit": 2}"#);
    assert!(part.contains("Boats wait for it.") && !part.contains("tide"), "{part}");
    // More is said of its faults than any pipe holds.
    let faulty = document(&["xx\n".repeat(30_000) + &line("Still here.")]);
    assert!(scene.reads(&faulty).contains("Still here."));
    let empty = scene.reads(&document(&[String::new()]));
    assert!(empty.contains("`paper.pdf` is a PDF: it has no text"), "{empty}");
    let half = scene.reads(&paper[..200]);
    assert!(half.contains("it is damaged (Syntax Error: Couldn't find trailer"), "{half}");
    let locked = scene.reads(&locked(&paper));
    assert!(locked.contains("`paper.pdf` is a PDF: it is encrypted, and needs a password"), "{locked}");
    let named = scene.reads("A note that names %PDF-1.4 and is none.");
    assert!(named.contains("A note that names"), "{named}");
    scene.reads(&(paper.clone() + "%\u{0}"));
    let before = fs::read(scene.daemon.path().join("workspace/paper.pdf")).expect("a file");
    let edit = scene.says(r#"files_edit {"path": "paper.pdf", "old": "tide", "new": "moon"}"#);
    assert!(edit.contains("binary file") && edit.contains("application/pdf"), "{edit}");
    assert_eq!(fs::read(scene.daemon.path().join("workspace/paper.pdf")).expect("a file"), before);
}

#[test]
fn where_the_program_is_missing_it_is_named_with_its_package() {
    let model = ModelServer::obedient();
    let mut daemon = Daemon::home(&model.config());
    daemon.variable("PATH", "/nonexistent");
    daemon.run();
    let scene = Scene { _model: model, daemon };
    let said = scene.reads(&document(&[line("Unread.")]));
    assert!(said.contains("`pdftotext`, which is not installed") && said.contains("poppler-utils"), "{said}");
}

#[test]
fn the_text_of_a_document_of_the_web_is_read_as_text_of_strangers() {
    if !can_read() {
        return;
    }
    let site = Site::start("127.0.0.2", |path| {
        let kind = if path == "/named" { "application/pdf" } else { "application/octet-stream" };
        let body = match path {
            "/half" => document(&[line("x")])[..200].to_owned(),
            _ => document(&[line("The ferry leaves at seven.")]),
        };
        ("200 OK", format!("content-type: {kind}\r\n"), body)
    });
    let web = json!({"enabled": true, "allow": ["127.0.0.2"], "gap_ms": 0});
    let scene = scene(&format!("extensions: {{web: {web}}}\n"));
    for (session, path) in [("s", "/named"), ("t", "/bytes")] {
        let turn = scene.daemon.turn(session, &format!("web_fetch {}", json!({"url": site.url(path)})));
        let said = turn["content"].as_str().unwrap_or_default();
        assert!(said.contains("[page 1 of 1]\nThe ferry leaves at seven."), "{said}\n{}", scene.daemon.log());
    }
    let half = scene.says(&format!("web_fetch {}", json!({"url": site.url("/half")})));
    assert!(half.contains("it is damaged"), "{half}");
    let told = scene.daemon.events("s");
    assert!(told.iter().any(|event| event["data"]["code"] == "tainted"), "{told:?}");
}
