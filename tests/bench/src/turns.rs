//! The kinds of turns: what is asked, and what model, floor and daemon make of it.

/// A kind of turn. Its text tells the model what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// One model call.
    Echo,
    /// Two model calls, one tool.
    Tool,
    /// Orchestrator, agent, tool, answer: four model calls, two agents.
    Delegate,
    /// Two model calls, a tool of 50 ms.
    Slow,
    /// Two model calls, eight tools of 50 ms in one step.
    Fanout,
    /// One model call, whose answer is longer and comes in 256 pieces.
    Stream,
    /// One model call, whose answer comes in 64 pieces, one after another.
    Spaced,
}

/// What the tool of [`Work::Tool`] is asked for, and what it finds.
pub const VALUE: (&str, &str) = ("alpha", "forty-two");

/// The extension with the tool of [`Work::Slow`].
pub const TOOLS: &str = "bench_tools";

/// The agent of [`Work::Delegate`], and its manifest.
pub const KEEPER: (&str, &str) = (
    "keeper",
    "id: keeper\nname: Keeper\ndescription: Keeps values under keys.\nagent:\n  model: default\n  \
     instructions: You keep values under keys.\n  uses_tools: [kv]\n",
);

impl Work {
    /// In the order in which a message is searched for them: an agent is told its caller's message too, and what it
    /// shall do itself is a [`Work::Tool`].
    pub const ALL: [Self; 7] =
        [Self::Tool, Self::Delegate, Self::Slow, Self::Fanout, Self::Stream, Self::Spaced, Self::Echo];

    /// What the user says.
    pub fn text(self) -> &'static str {
        match self {
            Self::Echo => "bench-echo: what do you think?",
            Self::Tool => "bench-tool: what is the value of alpha?",
            Self::Delegate => "bench-delegate: let somebody look up alpha.",
            Self::Slow => "bench-slow: wait.",
            Self::Fanout => "bench-fanout: wait eight times.",
            Self::Stream => "bench-stream: tell a story.",
            Self::Spaced => "bench-spaced: tell it slowly.",
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let text = self.text();
        text.split_once(':').map_or(text, |(mark, _)| mark).trim_start_matches("bench-")
    }

    /// What a message asks for.
    pub fn of(message: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| {
            let (mark, _) = work.text().split_once(':').unwrap_or_default();
            message.contains(mark)
        })
    }

    /// The calls that the model makes first: names and parameters.
    pub fn calls(self) -> Vec<(&'static str, String)> {
        let wait = |at: u32| ("slow", format!("{{\"i\":{at}}}"));
        match self {
            Self::Echo | Self::Stream | Self::Spaced => Vec::new(),
            Self::Tool => vec![("kv_get", format!("{{\"key\":\"{}\"}}", VALUE.0))],
            Self::Delegate => vec![("agent_keeper", format!("{{\"task\":\"{}\"}}", Self::Tool.text()))],
            Self::Slow => vec![wait(0)],
            // Different ones: a model that repeats itself is a fault that the daemon looks for.
            Self::Fanout => (0..8).map(wait).collect(),
        }
    }

    /// The tools that run in the whole turn, by name.
    pub fn tools(self) -> Vec<&'static str> {
        let below = if self == Self::Delegate { Self::Tool.calls() } else { Vec::new() };
        let mut names: Vec<_> = self.calls().into_iter().chain(below).map(|(name, _)| name).collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_known_by_its_text_and_an_agents_task_by_its_own() {
        for work in Work::ALL {
            assert_eq!(Work::of(work.text()), Some(work));
        }
        let task = format!("{}\n\nThe user said: {}", Work::Tool.text(), Work::Delegate.text());
        assert_eq!(Work::of(&task), Some(Work::Tool));
        assert_eq!((Work::of("hello"), Work::Delegate.name()), (None, "delegate"));
        assert_eq!(Work::Delegate.tools(), ["agent_keeper", "kv_get"]);
    }
}
