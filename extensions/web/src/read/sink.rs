//! Makes a document of HTML within bounds.
//!
//! A parser of HTML must make a tree of anything, and a page can ask for far more than its own size: each element that is not
//! closed is opened again in every later paragraph. So the tree is counted while it grows, and time is looked at.

use std::{
    any::Any,
    borrow::Cow,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Instant,
};

use dom_query::{Document, NodeId};
use drupe_extension_api::{Fault, FaultCode};
use html5ever::{
    Attribute, ParseOpts, QualName, parse_document,
    tendril::{StrTendril, TendrilSink as _},
    tree_builder::{ElementFlags, NodeOrText, QuirksMode, TreeBuilderOpts, TreeSink},
};

/// Elements after which no more of a page is read; the largest pages that people write have some ten thousand.
const ELEMENTS: usize = 60_000;
/// Elements at which it is given up: so many that one piece of a page cannot lead to them by itself.
const TOO_MANY: usize = 4 * ELEMENTS;
/// How much of a page is parsed before it is looked at what came of it.
const PIECE: usize = 4 << 10;
/// Steps of the parser between two looks at the clock.
const LOOK: u32 = 4096;
/// Steps at which it is given up: each element looks through all that are open around it, so depth costs the most. A page of
/// sixty thousand elements takes some four million.
const STEPS: u32 = 20_000_000;

/// A document, and whether it is all of the page.
pub struct Parsed {
    pub document: Document,
    pub whole: bool,
}

/// What ends a parser that has no way to be told to stop.
struct Stop(&'static str);

pub fn parse(html: &str, until: Instant) -> Result<Parsed, Fault> {
    let work = || {
        let sink =
            Bounded { document: Document::default(), elements: Cell::new(0), steps: Cell::new(0), until };
        let tree_builder = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
        let mut parser = parse_document(sink, ParseOpts { tree_builder, ..ParseOpts::default() });
        let mut rest = html;
        while !rest.is_empty() && parser.tokenizer.sink.sink.elements.get() < ELEMENTS {
            stop_late(until);
            let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE));
            parser.process(StrTendril::from(piece));
            rest = after;
        }
        Parsed { whole: rest.is_empty(), document: parser.finish() }
    };
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| given_up(panic, "the page"))
}

/// The fault of work that ended by [`stop`]; any other panic goes on.
pub fn given_up(panic: Box<dyn Any + Send>, what: &str) -> Fault {
    match panic.downcast::<Stop>() {
        Ok(stop) => Fault::new(FaultCode::Other, format!("{what} was not read: {}", stop.0)),
        Err(other) => resume_unwind(other),
    }
}

/// Ends work that runs below a `catch_unwind`, without a word in the log: nothing is wrong with us.
pub fn stop(why: &'static str) -> ! {
    resume_unwind(Box::new(Stop(why)))
}

/// Ends work whose time is over.
pub fn stop_late(until: Instant) {
    if Instant::now() > until {
        stop("it takes too long");
    }
}

struct Bounded {
    document: Document,
    elements: Cell<usize>,
    steps: Cell<u32>,
    until: Instant,
}

impl Bounded {
    fn step(&self) {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if steps > STEPS {
            stop("its elements lie too deep in each other");
        }
        if steps.is_multiple_of(LOOK) {
            stop_late(self.until);
        }
    }
}

impl TreeSink for Bounded {
    type Handle = NodeId;
    type Output = Document;
    type ElemName<'a> = <Document as TreeSink>::ElemName<'a>;

    fn finish(self) -> Document {
        self.document
    }

    // Nobody asks what is wrong with a page, and there may be as many faults as bytes.
    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> NodeId {
        self.document.get_document()
    }

    fn elem_name<'a>(&'a self, target: &'a NodeId) -> Self::ElemName<'a> {
        self.step();
        self.document.elem_name(target)
    }

    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, flags: ElementFlags) -> NodeId {
        self.step();
        self.elements.set(self.elements.get() + 1);
        if self.elements.get() > TOO_MANY {
            stop("it has too many elements");
        }
        self.document.create_element(name, attrs, flags)
    }

    fn create_comment(&self, _: StrTendril) -> NodeId {
        self.document.create_comment(StrTendril::new())
    }

    fn create_pi(&self, _: StrTendril, _: StrTendril) -> NodeId {
        self.document.create_comment(StrTendril::new())
    }

    fn append(&self, parent: &NodeId, child: NodeOrText<NodeId>) {
        self.step();
        self.document.append(parent, child);
    }

    fn append_based_on_parent_node(&self, element: &NodeId, before: &NodeId, child: NodeOrText<NodeId>) {
        self.document.append_based_on_parent_node(element, before, child);
    }

    fn append_doctype_to_document(&self, name: StrTendril, public: StrTendril, system: StrTendril) {
        self.document.append_doctype_to_document(name, public, system);
    }

    fn get_template_contents(&self, target: &NodeId) -> NodeId {
        self.document.get_template_contents(target)
    }

    fn same_node(&self, one: &NodeId, other: &NodeId) -> bool {
        self.step();
        self.document.same_node(one, other)
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.document.set_quirks_mode(mode);
    }

    fn append_before_sibling(&self, sibling: &NodeId, node: NodeOrText<NodeId>) {
        self.step();
        self.document.append_before_sibling(sibling, node);
    }

    fn add_attrs_if_missing(&self, target: &NodeId, attrs: Vec<Attribute>) {
        self.document.add_attrs_if_missing(target, attrs);
    }

    fn remove_from_parent(&self, target: &NodeId) {
        self.document.remove_from_parent(target);
    }

    fn reparent_children(&self, node: &NodeId, new_parent: &NodeId) {
        self.document.reparent_children(node, new_parent);
    }

    fn is_mathml_annotation_xml_integration_point(&self, handle: &NodeId) -> bool {
        self.document.is_mathml_annotation_xml_integration_point(handle)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn depth_elements_and_time_are_bounded_each_by_itself() {
        let now = Instant::now();
        let later = now + Duration::from_secs(600);
        let parse =
            |html: &str, until| parse(html, until).map(|parsed| parsed.whole).map_err(|fault| fault.message);
        assert_eq!(parse("<p>x", later), Ok(true));
        let deep = parse(&"<div>".repeat(10_000), later);
        assert_eq!(deep, Err("the page was not read: its elements lie too deep in each other".to_owned()));
        assert_eq!(parse(&"<br>".repeat(ELEMENTS + PIECE), later), Ok(false));
        let late = "the page was not read: it takes too long";
        assert_eq!(parse(&"<p>x".repeat(10), now - Duration::from_secs(1)), Err(late.to_owned()));
    }
}
