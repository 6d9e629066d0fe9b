//! Budgets of days, sessions, agents and named tokens: reserved before a model is asked, reconciled after.
//!
//! A call is let through only while what is used, what others have reserved and its own worst case stay within
//! every limit; so calls that run at the same time cannot pass one together.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::{AgentId, BudgetUse, SessionId};

use crate::{
    Counted, Purse, QuotaExceeded, QuotaLimits, ScopeLimits, TokenLimits,
    counter::{Counter, told},
    purses,
    tally::{Tally, Unit, micros},
};

pub const DAY_MS: i64 = 86_400_000;

#[derive(Debug, Clone, Copy)]
pub struct Spender<'a> {
    pub session: &'a SessionId,
    pub agent: &'a AgentId,
}

/// The counters of the process; shared behind an `Arc`. Its one lock is held for arithmetic only.
#[derive(Debug)]
pub struct Quotas {
    limits: QuotaLimits,
    state: Arc<Mutex<Tallies>>,
}

#[derive(Debug)]
struct Tallies {
    /// Days since 1970 in UTC; the day that `today`, `agents` and `purses` count.
    day: i64,
    today: Tally,
    agents: HashMap<AgentId, Tally>,
    sessions: HashMap<SessionId, Tally>,
    /// What named tokens are bounded by, by their names.
    bounds: BTreeMap<String, TokenLimits>,
    /// Those of sessions that are open.
    purses: HashMap<Purse, Tally>,
    /// The calls of earlier processes that were counted as lost. There are as many as were open when those ended.
    lost: HashSet<String>,
}

/// How much of one bound is used.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    pub used: BudgetUse,
    /// By whom, for people; empty where nobody has used any.
    pub whose: String,
    /// The agent or session by its id, or `day`; empty where nobody has used any.
    pub name: String,
}

/// A reservation, to be given back to [`Quotas::settle`].
///
/// One that is dropped instead, as when the future of a run is, counts as used whole: what the provider has done
/// by then is not known.
#[derive(Debug)]
#[must_use = "a reservation that is dropped counts as used whole"]
pub struct Hold {
    state: Arc<Mutex<Tallies>>,
    session: SessionId,
    agent: AgentId,
    day: i64,
    tokens: u64,
    micros: u64,
    open: bool,
}

impl Quotas {
    pub fn new(limits: QuotaLimits) -> Self {
        let state = Tallies {
            day: i64::MIN,
            today: Tally::default(),
            agents: HashMap::new(),
            sessions: HashMap::new(),
            bounds: BTreeMap::new(),
            purses: HashMap::new(),
            lost: HashSet::new(),
        };
        Self { limits, state: Arc::new(Mutex::new(state)) }
    }

    pub fn unlimited() -> Self {
        Self::new(QuotaLimits::unlimited())
    }

    /// Sets what the day of `now_ms` has used, in all and by agent. Meant for the start of a daemon, before its
    /// first run: it replaces what was counted. Limits of which most is used already are not warned of again.
    pub fn seed_day(&self, now_ms: i64, day: Counted, agents: impl IntoIterator<Item = (AgentId, Counted)>) {
        let QuotaLimits { warn_at, .. } = self.limits;
        let mut state = self.state_at(now_ms);
        state.today = Tally::of(day, &self.limits.day, warn_at);
        state.agents = agents
            .into_iter()
            .map(|(agent, used)| (agent, Tally::of(used, &self.limits.agent, warn_at)))
            .collect();
    }

    /// The purses that limits of a named token would give sessions that are open.
    pub fn purses_of(&self, token: &str, limits: &TokenLimits) -> Vec<Purse> {
        let bounds = BTreeMap::from([(token.to_owned(), limits.clone())]);
        let state = locked(&self.state);
        let all = state.sessions.keys().flat_map(|session| purses::of(&bounds, session));
        all.map(|(purse, _)| purse).collect::<HashSet<_>>().into_iter().collect()
    }

    /// Bounds what is used in the sessions of a named token from now on. `used` is what the purses of those that are open
    /// have used today.
    pub fn bind(&self, token: &str, limits: TokenLimits, used: impl IntoIterator<Item = (Purse, Counted)>) {
        let mut state = locked(&self.state);
        state.bounds.insert(token.to_owned(), limits);
        used.into_iter().for_each(|(purse, used)| state.open_purse(purse, used, self.limits.warn_at));
    }

    /// Lets a named token use what it wants: nobody has it any more.
    pub fn unbind(&self, token: &str) {
        let mut state = locked(&self.state);
        state.bounds.remove(token);
        state.purses.retain(|purse, _| purse.token() != token);
    }

    /// Takes up the counters of a session that becomes active; does nothing when they are known. Those of its purses are taken
    /// up after it, so that none of them goes with another session meanwhile.
    pub fn open_session(&self, session: &SessionId, used: Counted) {
        let tally = Tally::of(used, &self.limits.session, self.limits.warn_at);
        locked(&self.state).sessions.entry(session.clone()).or_insert(tally);
    }

    /// The purses of a session of which nobody knows yet what is used.
    pub fn unknown_purses(&self, session: &SessionId, now_ms: i64) -> Vec<Purse> {
        let state = self.state_at(now_ms);
        let purses = purses::of(&state.bounds, session).into_iter().map(|(purse, _)| purse);
        purses.filter(|purse| !state.purses.contains_key(purse)).collect()
    }

    /// Takes up a purse with what it has used today; does nothing when it is known.
    pub fn open_purse(&self, purse: Purse, used: Counted) {
        locked(&self.state).open_purse(purse, used, self.limits.warn_at);
    }

    /// Forgets the counters of a session, none of whose turns runs any more.
    pub fn close_session(&self, session: &SessionId) {
        let mut state = locked(&self.state);
        let Tallies { sessions, purses, .. } = &mut *state;
        sessions.remove(session);
        purses.retain(|purse, _| !purse.holds(session) || sessions.keys().any(|other| purse.holds(other)));
    }

    /// Counts one run of an agent. Gives the warnings that are newly due.
    ///
    /// # Errors
    /// The limit that this run would pass; nothing is counted then.
    pub fn begin_run(&self, who: Spender<'_>, now_ms: i64) -> Result<Vec<BudgetUse>, QuotaExceeded> {
        let mut state = self.state_at(now_ms);
        state.know(who);
        self.check(&mut state, who, Unit::Runs, 1)?;
        let day = state.day;
        state.each(who.session, who.agent, day, |_, tally| tally.meter(Unit::Runs).settle(0, 1));
        Ok(self.warnings(&mut state, who, day))
    }

    /// Puts the worst case of one model call aside: `tokens` of input and output, and `usd` where the price is
    /// known.
    ///
    /// # Errors
    /// The limit that this call could pass; nothing is reserved then.
    pub fn reserve(
        &self,
        who: Spender<'_>,
        tokens: u64,
        usd: Option<f64>,
        now_ms: i64,
    ) -> Result<Hold, QuotaExceeded> {
        let cost = usd.map_or(0, micros);
        let mut state = self.state_at(now_ms);
        state.know(who);
        self.check(&mut state, who, Unit::Tokens, tokens)?;
        self.check(&mut state, who, Unit::Micros, cost)?;
        let day = state.day;
        state.put_aside(who, tokens, cost);
        Ok(Hold {
            state: Arc::clone(&self.state),
            session: who.session.clone(),
            agent: who.agent.clone(),
            day,
            tokens,
            micros: cost,
            open: true,
        })
    }

    /// Ends a reservation with what the call has used, which belongs to the day on which it ended, as in the journal.
    /// Gives the warnings that are newly due.
    pub fn settle(&self, mut hold: Hold, tokens: u64, usd: Option<f64>, now_ms: i64) -> Vec<BudgetUse> {
        let mut state = self.state_at(now_ms);
        hold.open = false;
        hold.end(&mut state, tokens, usd.map_or(0, micros));
        let day = state.day;
        self.warnings(&mut state, hold.spender(), day)
    }

    /// Moves a reservation on to the attempt that follows one which failed: what that has used counts, and so much is put
    /// aside for the next, `tokens` and `usd` where the price is known. Gives the warnings that are newly due.
    ///
    /// # Errors
    /// The limit that the next attempt could pass; nothing is put aside any more then.
    pub fn follow(
        &self,
        hold: &mut Hold,
        used: (u64, Option<f64>),
        (tokens, usd): (u64, Option<f64>),
        now_ms: i64,
    ) -> Result<Vec<BudgetUse>, QuotaExceeded> {
        let mut state = self.state_at(now_ms);
        hold.end(&mut state, used.0, used.1.map_or(0, micros));
        let (cost, day) = (usd.map_or(0, micros), state.day);
        self.check(&mut state, hold.spender(), Unit::Tokens, tokens)?;
        self.check(&mut state, hold.spender(), Unit::Micros, cost)?;
        (hold.day, hold.tokens, hold.micros) = (day, tokens, cost);
        state.put_aside(hold.spender(), tokens, cost);
        Ok(self.warnings(&mut state, hold.spender(), day))
    }

    /// Counts all that an earlier process had set aside for a model call, whatever is left: nobody knows what it used. The
    /// same call counts once, however often it is told of.
    pub fn lose(&self, who: Spender<'_>, call: &str, tokens: u64, usd: f64, now_ms: i64) {
        let mut state = self.state_at(now_ms);
        state.know(who);
        if state.lost.contains(call) {
            return;
        }
        state.lost.insert(call.to_owned());
        let day = state.day;
        state.each(who.session, who.agent, day, |_, tally| {
            tally.meter(Unit::Tokens).settle(0, tokens);
            tally.meter(Unit::Micros).settle(0, micros(usd));
        });
    }

    /// The warnings that are newly due to somebody.
    pub fn due(&self, who: Spender<'_>, now_ms: i64) -> Vec<BudgetUse> {
        let mut state = self.state_at(now_ms);
        let day = state.day;
        self.warnings(&mut state, who, day)
    }

    /// How much of each bound is used: the day's, and of agents and active sessions those of the one that has used most.
    pub fn standing(&self, now_ms: i64) -> Vec<Standing> {
        let mut state = self.state_at(now_ms);
        let state = &mut *state;
        let mut standing = Vec::new();
        for unit in [Unit::Tokens, Unit::Micros, Unit::Runs] {
            // Of two that used as much, the lower id, so that every look tells the same.
            let most = |all: Vec<(String, String, u64)>| {
                all.into_iter().max_by(|a, b| a.2.cmp(&b.2).then_with(|| b.1.cmp(&a.1)))
            };
            let one = |kind: &str, id: &str, used| (format!("{kind} `{id}`"), id.to_owned(), used);
            let agents =
                state.agents.iter_mut().map(|(id, t)| one("agent", id.as_str(), t.meter(unit).used()));
            let sessions =
                state.sessions.iter_mut().map(|(id, t)| one("session", id.as_str(), t.meter(unit).used()));
            let day = ("the day".to_owned(), "day".to_owned(), state.today.meter(unit).used());
            let used = [
                (Counter::Day, Some(day)),
                (Counter::Agent, most(agents.collect())),
                (Counter::Session, most(sessions.collect())),
            ];
            for (counter, most) in used {
                let (whose, name, used) = most.unwrap_or_default();
                standing.extend(self.stands(&counter, unit, used, state.day, (whose, name)));
            }
            // Of tokens what all of their sessions use, where any is at work.
            let mut all: Vec<_> = state.purses.iter_mut().filter(|(purse, _)| purse.is_of_all()).collect();
            all.sort_by_key(|(purse, _)| purse.name());
            for (purse, tally) in all {
                let Some(limits) = state.bounds.get(&purse.name()).map(|bound| bound.all) else { continue };
                let whose = (purse.whose(), purse.name());
                let used = tally.meter(unit).used();
                standing.extend(self.stands(&Counter::Purse(purse, limits), unit, used, state.day, whose));
            }
        }
        standing
    }

    /// How much of a bound is used; none where there is no bound.
    fn stands(
        &self,
        counter: &Counter<'_>,
        unit: Unit,
        used: u64,
        day: i64,
        (whose, name): (String, String),
    ) -> Option<Standing> {
        let allowed = unit.allowed(self.of(counter));
        (allowed != u64::MAX).then(|| Standing { used: told(counter, unit, used, allowed, day), whose, name })
    }

    /// The state on the day of `now_ms`. A clock that is set back begins no day anew.
    fn state_at(&self, now_ms: i64) -> MutexGuard<'_, Tallies> {
        let mut state = locked(&self.state);
        let day = now_ms.div_euclid(DAY_MS);
        if day > state.day {
            state.day = day;
            state.today = Tally::default();
            state.agents.clear();
            state.purses.clear();
        }
        state
    }

    fn check(
        &self,
        state: &mut Tallies,
        who: Spender<'_>,
        unit: Unit,
        needs: u64,
    ) -> Result<(), QuotaExceeded> {
        let day = state.day;
        let mut found = None;
        state.each(who.session, who.agent, day, |counter, tally| {
            let meter = tally.meter(unit);
            let allowed = unit.allowed(self.of(&counter));
            if found.is_none() && !meter.fits(needs, allowed) {
                let used = told(&counter, unit, meter.taken(), allowed, day);
                found = Some(QuotaExceeded { used, whose: counter.whose(who), needs });
            }
        });
        found.map_or(Ok(()), Err)
    }

    fn warnings(&self, state: &mut Tallies, who: Spender<'_>, day: i64) -> Vec<BudgetUse> {
        let mut due = Vec::new();
        state.each(who.session, who.agent, day, |counter, tally| {
            for unit in [Unit::Tokens, Unit::Micros, Unit::Runs] {
                let allowed = unit.allowed(self.of(&counter));
                let meter = tally.meter(unit);
                if meter.warns(allowed, self.limits.warn_at) {
                    due.push(told(&counter, unit, meter.used(), allowed, day));
                }
            }
        });
        due
    }

    fn of<'a>(&'a self, counter: &'a Counter<'_>) -> &'a ScopeLimits {
        match counter {
            Counter::Session => &self.limits.session,
            Counter::Agent => &self.limits.agent,
            Counter::Day => &self.limits.day,
            Counter::Purse(_, limits) => limits,
        }
    }
}

impl Tallies {
    /// Has counters for whoever begins to spend.
    fn know(&mut self, who: Spender<'_>) {
        self.sessions.entry(who.session.clone()).or_default();
        self.know_today(who);
    }

    fn open_purse(&mut self, purse: Purse, used: Counted, warn_at: f64) {
        if let Some(limits) = self.bounds.get(purse.token()).map(|bound| purse.limits(bound)) {
            self.purses.entry(purse).or_insert_with(|| Tally::of(used, limits, warn_at));
        }
    }

    /// Has those counters that begin anew with each day.
    fn know_today(&mut self, who: Spender<'_>) {
        self.agents.entry(who.agent.clone()).or_default();
        // Those that are not known were opened on another day, and have used nothing of this one.
        for (purse, _) in purses::of(&self.bounds, who.session) {
            self.purses.entry(purse).or_default();
        }
    }

    /// Reserves so much, on the day that it counts.
    fn put_aside(&mut self, who: Spender<'_>, tokens: u64, micros: u64) {
        self.each(who.session, who.agent, self.day, |_, tally| {
            tally.meter(Unit::Tokens).reserve(tokens);
            tally.meter(Unit::Micros).reserve(micros);
        });
    }

    /// Visits the counters that the work of `day` belongs to, the widest first: where the day is used up, a new
    /// session would not help.
    /// Those of a session that was closed and of a day that is over are gone.
    fn each(
        &mut self,
        session: &SessionId,
        agent: &AgentId,
        day: i64,
        mut visit: impl FnMut(Counter<'_>, &mut Tally),
    ) {
        if day == self.day {
            visit(Counter::Day, &mut self.today);
            for (purse, limits) in purses::of(&self.bounds, session) {
                if let Some(tally) = self.purses.get_mut(&purse) {
                    visit(Counter::Purse(&purse, limits), tally);
                }
            }
            if let Some(tally) = self.agents.get_mut(agent) {
                visit(Counter::Agent, tally);
            }
        }
        if let Some(tally) = self.sessions.get_mut(session) {
            visit(Counter::Session, tally);
        }
    }
}

impl Hold {
    fn spender(&self) -> Spender<'_> {
        Spender { session: &self.session, agent: &self.agent }
    }

    /// Gives all of it free, and counts what was used on the day that it is now.
    fn end(&mut self, state: &mut Tallies, tokens: u64, micros: u64) {
        let (held_tokens, held_micros) = (std::mem::take(&mut self.tokens), std::mem::take(&mut self.micros));
        state.each(&self.session, &self.agent, self.day, |_, tally| {
            tally.meter(Unit::Tokens).settle(held_tokens, 0);
            tally.meter(Unit::Micros).settle(held_micros, 0);
        });
        let day = state.day;
        if day != self.day {
            // Another day has counted nothing of them yet.
            state.know_today(self.spender());
        }
        state.each(&self.session, &self.agent, day, |_, tally| {
            tally.meter(Unit::Tokens).settle(0, tokens);
            tally.meter(Unit::Micros).settle(0, micros);
        });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.open {
            let state = Arc::clone(&self.state);
            let (tokens, micros) = (self.tokens, self.micros);
            self.end(&mut locked(&state), tokens, micros);
        }
    }
}

/// Arithmetic on whole numbers leaves nothing half done, so a poisoned lock is as good as another.
fn locked(state: &Mutex<Tallies>) -> MutexGuard<'_, Tallies> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
