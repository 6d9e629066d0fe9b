//! The text of a PDF, page by page, by `pdftotext` of Poppler.
//!
//! What strangers made is read by a program of its own that is confined: it is given the bytes on its standard input, sees no
//! file of anybody's and no network, and has its time and its memory. So a document that makes a parser hang, crash or grow
//! ends that program, and nothing else. Extensions that read PDFs need the right `processes`.

use std::{fs, pin::pin, time::Duration};

use drupe_extension_api::{prelude::*, sdk::ByteReader, wire::ProcessExit};
use futures_util::future::{Either, join, select};

/// The program, as it is looked up in the operator's `PATH`.
const PROGRAM: &str = "pdftotext";

/// Its time; a book of a thousand pages takes some seconds.
pub const TIME: Duration = Duration::from_secs(20);

/// Its memory in MiB, of each of its processes; all together have three times as much.
const MEMORY_MB: u64 = 512;

const TASKS: u64 = 16;

/// Bytes of text that are kept of a document, at most; what is beyond is left out, and that is said.
pub const MOST: usize = 8 * 1024 * 1024;

/// Bytes of what it says of a fault.
const SAID: usize = 4 * 1024;

/// The text of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PdfText {
    /// Of each page, in their order; a page without text is empty.
    pub pages: Vec<String>,
    /// Whether there is more, which was left out.
    pub is_cut: bool,
}

impl PdfText {
    /// All of it, a line with its number before each page.
    pub fn told(&self) -> String {
        let (count, more) = (self.pages.len(), if self.is_cut { " or more" } else { "" });
        let pages = self.pages.iter().zip(1..);
        let pages = pages.map(|(text, page)| format!("[page {page} of {count}{more}]\n{text}\n"));
        let text = pages.collect::<Vec<_>>().join("\n");
        if self.is_cut {
            format!("{text}\n[what follows is left out: only {MOST} bytes of its text are read]\n")
        } else {
            text
        }
    }
}

/// What a PDF begins with.
pub const PDF: &[u8] = b"%PDF-";

/// Whether these are the bytes of a PDF, by their beginning: some writers put something before it, and readers take that
/// (Poppler looks at the first 1024 bytes).
pub fn is_pdf(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(1024)].windows(PDF.len()).any(|part| part == PDF)
}

/// The text of a PDF.
///
/// # Errors
/// [`FaultCode::NotConfigured`] where the program is not installed, [`FaultCode::Unavailable`] where the system cannot confine it,
/// [`FaultCode::Timeout`] where it takes too long, [`FaultCode::Denied`] where the program obeys its maker, who does not let its text be
/// taken out, and [`FaultCode::Invalid`] where it cannot be read: it is damaged, needs a password, ends the program, or has no text.
pub async fn read(host: &Host, bytes: &[u8]) -> Result<PdfText, Fault> {
    // The only folder that it may change, and nothing is ever in it.
    let folder = host.data_folder().join("pdf_text");
    fs::create_dir_all(&folder)?;
    let args = ["-enc", "UTF-8", "-eol", "unix", "-", "-"];
    let spec = ProcessSpec {
        args: args.map(str::to_owned).into(),
        folders: vec![folder.display().to_string()],
        timeout_ms: u64::try_from(TIME.as_millis()).ok(),
        memory_mb: Some(MEMORY_MB),
        tasks: Some(TASKS),
        ..ProcessSpec::new(PROGRAM, &folder)
    };
    let mut process = host.open_process(&spec).await.map_err(|fault| match fault.code {
        FaultCode::NotFound => {
            Fault::new(FaultCode::NotConfigured, format!("PDFs are read by `{PROGRAM}`, which is not installed"))
                .help("install Poppler's tools: the package `poppler-utils` of Debian, Ubuntu and Fedora, `poppler` elsewhere")
        }
        _ => fault,
    })?;
    let Output { text, is_cut, said } = output(&mut process, bytes).await?;
    if !is_cut {
        ended(&process.wait().await?, &said)?;
    }
    let pages = pages(&text, is_cut);
    if pages.iter().all(|page| page.trim().is_empty()) {
        let message = "it has no text: its pages are pictures, or empty";
        return Err(
            Fault::invalid(message).help("pictures of its pages can be shown to models that read pictures")
        );
    }
    Ok(PdfText { pages, is_cut })
}

/// What the program wrote to its streams.
struct Output {
    text: Vec<u8>,
    is_cut: bool,
    /// The beginning of what it says of faults.
    said: Vec<u8>,
}

/// Gives the program a document and reads what it writes, all at the same time: it waits where nobody reads.
async fn output(process: &mut Process, document: &[u8]) -> Result<Output, Fault> {
    let stdin = process.stdin.take();
    let written = async {
        if let Some(mut stdin) = stdin {
            // It may end before it has read all of it; its status tells.
            let _ = stdin.write(document).await;
        }
    };
    let beside = pin!(join(written, said(&mut process.stderr)));
    match select(pin!(text(&mut process.stdout)), beside).await {
        // It would wait for a reader, and is ended with what is left of it here.
        Either::Left((Ok((text, true)), _)) => Ok(Output { text, is_cut: true, said: Vec::new() }),
        Either::Left((text, beside)) => {
            let (text, is_cut) = text?;
            Ok(Output { text, is_cut, said: beside.await.1? })
        }
        Either::Right((((), said), text)) => {
            let (text, is_cut) = text.await?;
            Ok(Output { text, is_cut, said: said? })
        }
    }
}

/// Text up to its bound, and whether there is more, which is not waited for.
async fn text(stream: &mut ByteReader) -> Result<(Vec<u8>, bool), Fault> {
    let mut all = Vec::new();
    while let Some(mut more) = stream.read().await? {
        let room = MOST - all.len();
        let is_cut = more.len() > room;
        more.truncate(room);
        all.append(&mut more);
        if is_cut {
            return Ok((all, true));
        }
    }
    Ok((all, false))
}

/// The beginning of what is said, to its end.
async fn said(stream: &mut ByteReader) -> Result<Vec<u8>, Fault> {
    let mut all = Vec::new();
    while let Some(mut more) = stream.read().await? {
        more.truncate(SAID - all.len());
        all.append(&mut more);
    }
    Ok(all)
}

/// What it says of a document that opens by no empty password (Poppler 22.12, tried on 2026-11-26; its status is that of a damaged one).
const LOCKED: &str = "Incorrect password";

/// What its end means. Statuses: pdftotext(1) of Poppler 22.12, read on 2026-11-26. The one for permissions is not given by builds that
/// do not obey them, as Debian's does not (tried on the same day).
fn ended(exit: &ProcessExit, said: &[u8]) -> Result<(), Fault> {
    let why = || {
        let said = String::from_utf8_lossy(said);
        let line = said.lines().find(|line| line.contains("rror")).unwrap_or_default();
        let line: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
        if line.is_empty() { String::new() } else { format!(" ({line})") }
    };
    match exit {
        ProcessExit { timed_out: true, .. } => {
            Err(Fault::new(FaultCode::Timeout, format!("its text was not found within {} s", TIME.as_secs())))
        }
        ProcessExit { status: Some(0), .. } => Ok(()),
        ProcessExit { status: Some(3), .. } => {
            Err(Fault::denied(format!("whoever made it does not let its text be taken out{}", why())))
        }
        ProcessExit { exceeded: Some(what), .. } => {
            Err(Fault::invalid(format!("it was not read: the program that reads it was ended, as it {what}")))
        }
        // One that is refused more memory ends itself by a signal, as one that crashes does.
        ProcessExit { status: None, .. } => Err(Fault::invalid(format!(
            "it was not read: the program that reads it crashed on it, or needed more than {MEMORY_MB} MiB"
        ))),
        _ if String::from_utf8_lossy(said).contains(LOCKED) => {
            Err(Fault::invalid("it is encrypted, and needs a password to be opened")
                .help("ask for a copy without a password"))
        }
        _ => Err(Fault::invalid(format!("it cannot be read: it is damaged{}", why()))),
    }
}

/// The text of each page; a form feed ends one.
fn pages(text: &[u8], is_cut: bool) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let mut pages: Vec<String> = text.split('\u{c}').map(|page| page.trim_end().to_owned()).collect();
    if !is_cut && pages.last().is_some_and(String::is_empty) {
        pages.pop();
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pdf_is_known_by_its_beginning() {
        assert!(is_pdf(b"%PDF-1.7\n") && is_pdf(b"junk\n%PDF-1.4"));
        assert!(!is_pdf(b"") && !is_pdf(b"%PDF") && !is_pdf(&[&[b' '; 1024][..], b"%PDF-1.4"].concat()));
    }

    #[test]
    fn each_page_ends_with_a_form_feed() {
        assert_eq!(pages("one\n\n\u{c}\u{c}three\n\u{c}".as_bytes(), false), ["one", "", "three"]);
        assert_eq!(pages("one\u{c}tw".as_bytes(), true), ["one", "tw"]);
        assert_eq!(pages(b"", false), [""; 0]);
    }

    #[test]
    fn what_its_end_means_is_told_with_what_it_said() {
        let exit = |status, timed_out| ProcessExit { status, timed_out, ..ProcessExit::default() };
        let code = |exit: &ProcessExit| {
            ended(exit, b"Syntax Warning: x\nSyntax Error: Couldn't find\x1b trailer")
                .map_err(|f| (f.code, f.message))
        };
        assert_eq!(code(&exit(Some(0), false)), Ok(()));
        assert_eq!(code(&exit(None, true)).expect_err("late").0, FaultCode::Timeout);
        assert_eq!(code(&exit(Some(3), false)).expect_err("kept").0, FaultCode::Denied);
        for broken in [exit(Some(1), false), exit(Some(99), false)] {
            let (code, message) = code(&broken).expect_err("broken");
            assert!(
                code == FaultCode::Invalid
                    && message.ends_with("is damaged (Syntax Error: Couldn't find trailer)"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_document_that_is_locked_or_ends_the_program_is_not_called_damaged() {
        let exit = |status| ProcessExit { status, ..ProcessExit::default() };
        let locked = ended(&exit(Some(1)), b"Command Line Error: Incorrect password\n").expect_err("locked");
        assert!(locked.code == FaultCode::Invalid && locked.message.contains("needs a password"), "{locked}");
        let aborted = ProcessExit { signal: Some(6), ..exit(None) };
        let aborted = ended(&aborted, b"what():  std::bad_alloc").expect_err("aborted");
        assert!(aborted.message.contains("needed more than 512 MiB"), "{aborted}");
        let grown =
            ProcessExit { exceeded: Some("held more than 1536 MiB of memory together".into()), ..exit(None) };
        let grown = ended(&grown, b"").expect_err("grown");
        assert!(grown.message.ends_with("as it held more than 1536 MiB of memory together"), "{grown}");
    }
}
