//! What a provider said of the models that it has, remembered for a while.
//!
//! One asking is under way at a time, and all who need it share it. What came of it holds for a stated time, whether it was a
//! list, an empty one or a fault; then the provider is asked again, beside a request that goes on meanwhile. So a server
//! whose list never comes costs one wait, and one that had no model for a while is used as soon as it has one.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use drupe_agent::ModelFault;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::time::Instant;

use crate::{source::is_snapshot, wire::ListedModel};

/// For how long a list is taken as it is: models come and go by days.
const GOOD_FOR: Duration = Duration::from_secs(3_600);
/// For how long a fault is, or a list in which nothing is that could be asked. The same as the first rest of a provider.
const BAD_FOR: Duration = Duration::from_secs(30);
/// That time doubles up to this.
const BAD_FOR_AT_MOST: Duration = Duration::from_secs(300);

/// What came of an asking: none where the provider has no list.
pub(crate) type List = Result<Option<Vec<ListedModel>>, ModelFault>;
type Said = Arc<List>;
/// An asking that is under way.
pub(crate) type Asking = Shared<BoxFuture<'static, Said>>;

/// What is known of a provider's models at a moment.
pub(crate) enum Known {
    Fresh(Said),
    /// This, and the provider is being asked anew.
    Old(Said, Asking),
    /// Nothing; the provider is being asked.
    Nothing(Asking),
}

/// What a provider said of its models.
pub(crate) struct Listed {
    /// The models that are looked for.
    preferred: Vec<String>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    said: Option<(Said, Instant)>,
    asking: Option<Asking>,
    /// Askings in a row of which nothing came that is of use.
    failures: u32,
}

impl Listed {
    pub(crate) fn new(preferred: &[String]) -> Arc<Self> {
        Arc::new(Self { preferred: preferred.to_owned(), memory: Mutex::default() })
    }

    /// What is known now. `ask` asks the provider; it is called where nobody else is asking and what is known holds no
    /// longer. The asking goes on for as long as any of those who were given it polls it.
    pub(crate) fn known(self: &Arc<Self>, ask: impl FnOnce() -> BoxFuture<'static, List>) -> Known {
        let mut memory = self.memory();
        let said = memory.said.clone();
        if let Some((said, until)) = &said
            && *until > Instant::now()
        {
            return Known::Fresh(Arc::clone(said));
        }
        let asking = memory.asking.get_or_insert_with(|| {
            let (asked, own) = (ask(), Arc::downgrade(self));
            let remembered = async move {
                let said = Arc::new(asked.await);
                own.upgrade().map_or(Arc::clone(&said), |own| own.remember(said))
            };
            remembered.boxed().shared()
        });
        match said {
            Some((said, _)) => Known::Old(said, asking.clone()),
            None => Known::Nothing(asking.clone()),
        }
    }

    /// Keeps what was said, and gives what holds now: a list that was good stands where nothing came in its place.
    fn remember(&self, said: Said) -> Said {
        let mut memory = self.memory();
        memory.asking = None;
        memory.failures = if self.is_of_use(&said) { 0 } else { memory.failures.saturating_add(1) };
        let holds = match memory.failures {
            0 => GOOD_FOR,
            n => BAD_FOR.saturating_mul(1 << (n - 1).min(8)).min(BAD_FOR_AT_MOST),
        };
        let before = memory.said.take().map(|(before, _)| before);
        let before = before.filter(|before| says_nothing(&said) && self.is_of_use(before));
        let said = before.unwrap_or(said);
        memory.said = Some((Arc::clone(&said), Instant::now() + holds));
        said
    }

    /// Whether it tells which model to ask, or that the provider tells of none.
    fn is_of_use(&self, said: &List) -> bool {
        match said {
            Ok(Some(list)) => self.preferred.iter().any(|model| listed(list, model).is_some()),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// A panic elsewhere leaves a memory that can be gone on with.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it holds no model: as from a server that fails or has only begun.
fn says_nothing(said: &List) -> bool {
    match said {
        Ok(list) => list.as_ref().is_some_and(Vec::is_empty),
        Err(_) => true,
    }
}

/// The model of this name in a provider's list: itself, else one of its snapshots, else what servers with tags call it,
/// where the tag that nobody names is `latest` (Ollama's, as its API's description of 2026-11-23 has it).
pub(crate) fn listed<'a>(list: &'a [ListedModel], model: &str) -> Option<&'a ListedModel> {
    let is_latest = |name: &str| name.strip_suffix(":latest") == Some(model);
    let fits: [&dyn Fn(&str) -> bool; 3] =
        [&|name| name == model, &|name| is_snapshot(name, model), &is_latest];
    fits.iter().find_map(|fits| list.iter().find(|listed| fits(&listed.name)))
}

#[cfg(test)]
#[path = "listed_tests.rs"]
mod tests;
