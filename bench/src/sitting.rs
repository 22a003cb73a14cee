//! A sitting: all contestants in turn on the same machine, in another order in each repeat.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use contestant::{Backend, Fill, Request, Work};
use indicatif::{ProgressBar, ProgressStyle};

use crate::contestants;
use crate::db::{Place, Server};
use crate::disk;
use crate::options::Options;
use crate::program::{Entry, Program};
use crate::results::{Results, Sample};

/// The state that all workloads share.
pub(crate) struct Sitting {
    pub(crate) options: Options,
    pub(crate) results: Results,
    pub(crate) entries: Vec<Entry>,
    servers: Vec<Server>,
    log: PathBuf,
}

/// One contestant in one run: a database of its own, and as many processes as the workload wants.
pub(crate) struct Site<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) place: Place,
    pub(crate) server: &'a Server,
    log: &'a PathBuf,
}

/// A measured value.
pub(crate) struct Value {
    /// The circumstances, if they are not those of the whole run.
    pub(crate) case: Option<String>,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
}

impl Value {
    pub(crate) fn new(unit: &'static str, value: f64) -> Self {
        Value { case: None, unit, value }
    }
}

impl Sitting {
    /// Starts the servers, prints their settings, and finds the contestants.
    pub(crate) fn open(options: Options) -> Result<Self> {
        fs::create_dir_all(&options.out)?;
        let log = options.out.join("contestants.log");
        println!("the databases lie in {}, where {}\n", env::temp_dir().display(), disk::speed()?);
        let mut servers = Vec::new();
        let mut entries = Vec::new();
        let mut missing = Vec::new();
        for backend in options.backends() {
            let server = Server::start(backend)?;
            println!("{}: {}\n", backend.name(), server.settings()?);
            servers.push(server);
            let (all, not_there) = contestants::all(backend, &log)?;
            entries.extend(all.into_iter().filter(|entry| options.chooses(&entry.description.name)));
            missing = not_there;
        }
        for entry in &entries {
            let description = &entry.description;
            println!("{} on {}: {}", description.name, entry.backend.name(), description.settings);
        }
        missing.retain(|peer| options.chooses(&peer.replacen("peer-", "", 1)));
        if !missing.is_empty() {
            println!("\nnot built (anew), and left out: {}", missing.join(", "));
        }
        println!();
        Ok(Sitting { options, results: Results::default(), entries, servers, log })
    }

    pub(crate) fn backends(&self) -> Vec<Backend> {
        self.servers.iter().map(Server::backend).collect()
    }

    /// Measures each of the chosen contestants in each case, as often as asked, in random order.
    ///
    /// If a contestant fails, that is noted and the others go on.
    pub(crate) fn measure<T>(
        &mut self,
        workload: &'static str,
        repeats: usize,
        chosen: impl Fn(&Entry) -> bool,
        cases: &[(String, T)],
        run: impl Fn(&Options, &Site<'_>, &T) -> Result<Vec<Value>>,
    ) -> Result<()> {
        let chosen: Vec<&Entry> = self.entries.iter().filter(|entry| chosen(entry)).collect();
        let bar = ProgressBar::new((repeats * chosen.len() * cases.len()) as u64).with_style(
            ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {elapsed}, about {eta} left: {msg}")?,
        );
        bar.set_prefix(workload);
        // The tables list the contestants in this order, whatever the order of the runs.
        let mut samples = Vec::new();
        for repeat in 0..repeats {
            let mut turns: Vec<(usize, usize)> =
                (0..chosen.len()).flat_map(|who| (0..cases.len()).map(move |case| (who, case))).collect();
            fastrand::shuffle(&mut turns);
            for (who, case) in turns {
                let (entry, (name, case_of)) = (chosen[who], &cases[case]);
                let description = &entry.description;
                bar.set_message(format!("{} {} {name}", entry.backend.name(), description.name));
                let measured = |entry| {
                    Site::new(entry, &self.servers, &self.log).and_then(|site| run(&self.options, &site, case_of))
                };
                let reference = chosen.iter().find(|other| other.is_reference() && other.backend == entry.backend);
                let mut pair = Vec::new();
                if let (true, Some(reference), false) = (self.options.paired, reference, entry.is_reference()) {
                    pair = measured(reference).unwrap_or_default();
                }
                let values = measured(entry);
                match values {
                    Ok(values) => samples.extend(values.into_iter().map(|Value { case: of_it, unit, value }| {
                        let beside = pair.iter().find(|other| (other.unit, &other.case) == (unit, &of_it));
                        let sample = Sample {
                            workload,
                            backend: entry.backend.name(),
                            contestant: description.name.clone(),
                            guarantee: description.guarantee.name(),
                            case: of_it.unwrap_or_else(|| name.clone()),
                            unit,
                            repeat,
                            value,
                            beside: beside.map(|other| other.value),
                        };
                        ((who, case), sample)
                    })),
                    Err(error) => {
                        let backend = entry.backend.name();
                        let failure = format!("{workload}, {backend}, {}, {name}: {error:#}", description.name);
                        bar.suspend(|| eprintln!("{failure}"));
                        self.results.add_failure(failure);
                    }
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        samples.sort_by_key(|(place, _)| *place);
        samples.into_iter().for_each(|(_, sample)| self.results.add(sample));
        Ok(())
    }
}

impl<'a> Site<'a> {
    fn new(entry: &'a Entry, servers: &'a [Server], log: &'a PathBuf) -> Result<Self> {
        let server = servers.iter().find(|server| server.backend() == entry.backend).expect("its server was started");
        Ok(Site { entry, place: Place::on(server)?, server, log })
    }

    /// Starts a process of the contestant.
    pub(crate) fn program(&self) -> Result<Program> {
        Program::start(&self.entry.command, &self.entry.arguments, self.place.url(), self.log)
    }

    /// Starts a process and makes the tables.
    pub(crate) fn prepared(&self, entities: usize) -> Result<Program> {
        let mut program = self.program()?;
        program.tell(&Request::Prepare { entities })?;
        Ok(program)
    }

    /// Starts a process, makes the tables and fills them.
    pub(crate) fn filled(&self, fill: &Fill) -> Result<Program> {
        let mut program = self.prepared(1)?;
        program.tell(&Request::Fill(fill.clone()))?;
        self.place.settle_down()?;
        Ok(program)
    }

    /// Starts the workers.
    pub(crate) fn start(&self, program: &mut Program, work: &Work) -> Result<()> {
        program.tell(&Request::Start(work.clone()))
    }
}
