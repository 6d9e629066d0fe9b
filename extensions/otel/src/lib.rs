//! Traces of finished turns for an OpenTelemetry collector, over OTLP/HTTP with JSON.
//!
//! Nothing is measured here. The daemon tells that the run of a turn has ended, and its journal what the turn was made of: a trace that
//! is sent later, or once more, is the same trace. It has neither the network nor the collector's secret: the daemon sends its requests.

mod collector;
mod content;
mod deliver;
mod ids;
mod names;
mod otlp;
mod refusals;
mod settings;
mod spans;
mod waiting;

use drupe_extension_api::prelude::*;

use self::{collector::Collector, deliver::Exporter, settings::OtelSettings, waiting::TurnQueue};

struct Otel {
    exporter: Exporter,
}

impl Extension for Otel {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let settings: OtelSettings = host.config()?;
        let collector = Collector::new(host.clone(), &settings);
        let waiting = TurnQueue::open(host.clone(), settings.backlog)?;
        Ok(Self { exporter: Exporter { host, settings, collector, waiting } })
    }
}

impl Service for Otel {
    async fn run(&self, shutdown: Shutdown) -> Result<(), Fault> {
        tokio::select! {
            () = shutdown => Ok(()),
            ended = self.exporter.listen() => ended,
            ended = self.exporter.deliver() => ended,
        }
    }
}

export!(Otel: Service);

#[cfg(test)]
mod tests;
