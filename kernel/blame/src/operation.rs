//! What an extension was asked to do.

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $wire:literal;)*) => {
        /// What an extension was doing, as far as the page tells.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Operation {
            $($(#[$doc])* $name = $code,)*
        }

        impl Operation {
            /// All of them.
            #[cfg(test)]
            pub(crate) const ALL: &[Operation] = &[$(Operation::$name,)*];

            /// The operation of a wire name such as `tool.call`; [`Other`](Operation::Other) for an unknown one.
            pub fn named(name: &str) -> Self {
                match name {
                    $($wire => Operation::$name,)*
                    _ => Operation::Other,
                }
            }

            /// Its wire name, or a word of the same form for what never crosses the wire.
            pub fn name(self) -> &'static str {
                match self {
                    $(Operation::$name => $wire,)*
                }
            }

            /// The operation that the page holds as `code`.
            pub(crate) fn from_code(code: u8) -> Self {
                match code {
                    $($code => Operation::$name,)*
                    _ => Operation::Other,
                }
            }
        }
    };
}

// The codes are part of the page's layout: a number is never used for something else.
operations! {
    /// Anything that is not named here.
    Other = 0, "other";
    /// Its library is opened.
    Load = 1, "load";
    /// It says what it can do.
    Describe = 2, "describe";
    /// It gets its configuration.
    Initialize = 3, "initialize";
    /// Its work begins.
    Start = 4, "start";
    /// Its work ends.
    Stop = 5, "stop";
    /// It is asked how it is.
    Health = 6, "health";
    /// A tool of its runs.
    ToolCall = 7, "tool.call";
    /// It is asked which tools it has for a manifest.
    ToolLookup = 8, "tool.lookup";
    /// Its channel begins to listen.
    ChannelStart = 9, "channel.start";
    /// It delivers a message.
    ChannelSend = 10, "channel.send";
    /// It shows an answer while it comes.
    ChannelStream = 11, "channel.stream";
    /// Its service runs.
    ServiceRun = 12, "service.run";
    /// A schedule of its is due.
    SchedulerExecute = 13, "scheduler.execute";
    /// It acts as an agent.
    AgentInvoke = 14, "agent.invoke";
    /// It is asked for context of a turn.
    ContextGet = 15, "context.get";
    /// It hears of an event.
    HookOn = 16, "hook.on";
    /// The instance ends.
    Close = 17, "close";
    /// A future of its is dropped.
    Drop = 18, "drop";
    /// A thread that it started itself.
    Thread = 19, "thread";
    /// The operator asks something of it.
    OperatorAsk = 20, "operator.ask";
    /// It is told of the servers of agents.
    AgentServers = 21, "agents.servers";
}

impl Operation {
    /// Whether it belongs to the extension's way into service, where one death is enough for a verdict.
    pub fn loading(self) -> bool {
        matches!(self, Self::Load | Self::Describe | Self::Initialize | Self::Start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_lead_back_to_the_operation() {
        for operation in Operation::ALL {
            assert_eq!(Operation::named(operation.name()), *operation);
            assert_eq!(Operation::from_code(*operation as u8), *operation);
        }
    }

    #[test]
    fn an_unknown_name_or_code_is_something_else() {
        assert_eq!(Operation::named("tool.juggle"), Operation::Other);
        assert_eq!(Operation::from_code(255), Operation::Other);
    }

    #[test]
    fn loading_ends_when_work_has_begun() {
        let loading: Vec<&str> =
            Operation::ALL.iter().filter(|operation| operation.loading()).map(|o| o.name()).collect();
        assert_eq!(loading, ["load", "describe", "initialize", "start"]);
    }
}
