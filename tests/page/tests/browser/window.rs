//! A browser with one window.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::elements::Element;
use fantoccini::error::{CmdError, NewSessionError};
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::by::By;
use super::driver::{self, Driver};
use super::runtime::runtime;
use super::until::{PATIENCE, until};
use super::wire::Command;

/// A browser of a test's own, with an empty profile. It ends with the value.
pub(crate) struct Browser {
    client: Client,
    has_scripts: bool,
    _profile: TempDir,
    _turn: Turn,
}

impl Browser {
    /// Starts a browser.
    pub(crate) fn new() -> Self {
        Browser::start(true)
    }

    /// Starts a browser whose user has switched off JavaScript.
    pub(crate) fn without_scripts() -> Self {
        Browser::start(false)
    }

    fn start(has_scripts: bool) -> Self {
        let turn = Turn::take();
        let driver = driver::shared();
        let begin = || {
            let profile = driver.profile();
            let Value::Object(wanted) = wanted(driver, &profile, has_scripts) else { unreachable!("it is an object") };
            let mut builder = ClientBuilder::new(HttpConnector::new());
            let client = runtime().block_on(builder.capabilities(wanted).connect(driver.address()))?;
            Ok::<_, NewSessionError>((client, profile))
        };
        // On a busy machine Chromium does not always come up.
        let (client, profile) = begin()
            .or_else(|_| begin())
            .or_else(|_| begin())
            .unwrap_or_else(|error| panic!("no browser: {error}\n{}", driver.log()));
        Browser { client, has_scripts, _profile: profile, _turn: turn }
    }

    /// Whether the pages' scripts run.
    pub(crate) fn has_scripts(&self) -> bool {
        self.has_scripts
    }

    /// Goes to an address.
    pub(crate) fn open(&self, address: &str) {
        self.ask(self.client.goto(address)).unwrap_or_else(|error| panic!("{address} does not load: {error}"));
    }

    /// Loads the page again.
    pub(crate) fn reload(&self) {
        self.ask(self.client.refresh()).unwrap_or_else(|error| panic!("no reload: {error}"));
    }

    /// Goes back to the page before.
    pub(crate) fn back(&self) {
        self.ask(self.client.back()).unwrap_or_else(|error| panic!("no way back: {error}"));
    }

    /// The address of the page.
    pub(crate) fn address(&self) -> String {
        self.ask(self.client.current_url()).unwrap_or_else(|error| panic!("no address: {error}")).into()
    }

    /// The title of the page.
    pub(crate) fn title(&self) -> String {
        self.ask(self.client.title()).unwrap_or_else(|error| panic!("no title: {error}"))
    }

    /// What a person reads on the page.
    pub(crate) fn text(&self) -> String {
        self.text_of(By::Css("body"))
    }

    /// What a person reads there.
    pub(crate) fn text_of(&self, by: By<'_>) -> String {
        self.with(by, async |element| element.text().await)
    }

    /// An attribute, if it is there.
    pub(crate) fn attribute_of(&self, by: By<'_>, name: &str) -> Option<String> {
        self.with(by, async |element| element.attr(name).await)
    }

    /// How many there are now.
    pub(crate) fn count(&self, by: By<'_>) -> usize {
        let found = self.ask(self.client.find_all(by.search().locator()));
        found.unwrap_or_else(|error| panic!("{by}: {error}")).len()
    }

    /// Waits until it is there, and clicks it.
    pub(crate) fn click(&self, by: By<'_>) {
        self.with(by, async |element| element.click().await);
    }

    /// Waits until a field is there, and writes into it instead of what was there.
    pub(crate) fn fill(&self, by: By<'_>, text: &str) {
        self.with(by, async |element| {
            element.clear().await?;
            element.send_keys(text).await
        });
    }

    /// Waits until a field with options is there, and chooses one by its text.
    pub(crate) fn choose(&self, by: By<'_>, option: &str) {
        self.with(by, async |element| element.select_by_label(option).await);
    }

    /// Waits until a person reads this text.
    pub(crate) fn see(&self, text: &str) {
        until(&format!("{text:?} on {}", self.address()), || {
            let read = self.read()?;
            if read.contains(text) { Ok(()) } else { Err(format!("there is only {read:?}")) }
        });
    }

    /// Waits until a person reads this text, who loads the page again if it has no scripts that do so.
    pub(crate) fn await_text(&self, text: &str) {
        if self.has_scripts {
            return self.see(text);
        }
        until(text, || {
            self.reload();
            let read = self.text();
            if read.contains(text) { Ok(()) } else { Err(read) }
        });
    }

    /// The page's text, if the page stays while the driver reads it.
    fn read(&self) -> Result<String, String> {
        let read = self.ask(async {
            let body = self.client.find(fantoccini::Locator::Css("body")).await?;
            body.text().await
        });
        read.map_err(|error| error.to_string())
    }

    /// Finds an element and does something with it, again if a script of the page has replaced it meanwhile.
    fn with<T>(&self, by: By<'_>, act: impl AsyncFn(Element) -> Result<T, CmdError>) -> T {
        let search = by.search();
        until(&by.to_string(), || {
            let done = self.ask(async { act(self.client.find(search.locator()).await?).await });
            done.map_err(|error| format!("{error} on {}", self.address()))
        })
    }

    /// Presses a key, and releases it.
    pub(crate) fn press(&self, key: Key) {
        let value = char::from(key);
        let keys = KeyActions::new("keyboard".to_owned());
        let keys = keys.then(KeyAction::Down { value }).then(KeyAction::Up { value });
        self.ask(self.client.perform_actions(keys)).unwrap_or_else(|error| panic!("no key: {error}"));
    }

    /// Types a text where the focus is, again if a script of the page has replaced the field before the first letter.
    pub(crate) fn write(&self, text: &str) {
        until(&format!("a place for {text:?}"), || {
            let typed = self.ask(async { self.client.active_element().await?.send_keys(text).await });
            typed.map_err(|error| error.to_string())
        });
    }

    /// The role and the name of the element that has the focus, as a screen reader says them; asks again if a script of the
    /// page has replaced the element meanwhile.
    pub(crate) fn focused(&self) -> (String, String) {
        until("the focus", || {
            let element = self.ask(self.client.active_element()).map_err(|error| format!("no focus: {error}"))?;
            let id = element.element_id().to_string();
            let said = |command| match self.command(command) {
                Ok(said) => Ok(said.as_str().unwrap_or_default().to_owned()),
                Err(error) => Err(format!("no role and no name: {error}")),
            };
            Ok((said(Command::role(&id))?, said(Command::name(&id))?))
        })
    }

    /// Presses Tab until an element of this role and name has the focus, and asserts that a person sees where the focus is.
    pub(crate) fn tab_to(&self, role: &str, name: &str) {
        const ENOUGH: usize = 200;
        let mut passed = Vec::new();
        while passed.len() < ENOUGH {
            self.press(Key::Tab);
            let focused = self.focused();
            assert!(self.shows_focus(), "nobody sees that {focused:?} on {} has the focus", self.address());
            if focused == (role.to_owned(), name.to_owned()) {
                return;
            }
            passed.push(focused);
        }
        panic!("Tab never reaches the {role} {name:?} on {}: {passed:?}", self.address());
    }

    /// Whether the focused element has an outline or a shadow; the body, between the last element and the first, needs none.
    fn shows_focus(&self) -> bool {
        let seen = self.script(
            "const focused = document.activeElement, style = getComputedStyle(focused);
             return focused === document.body || style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0
                 || style.boxShadow !== 'none';",
        );
        seen == Value::Bool(true)
    }

    /// Gives the page this many pixels of CSS, with as many pixels of the screen for each.
    pub(crate) fn resize(&self, width: u32, height: u32, scale: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": false });
        self.chromium("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Tells the page that its user likes it dark, or light.
    pub(crate) fn darken(&self, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.chromium("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Runs a command of Chromium's own protocol.
    pub(crate) fn chromium(&self, name: &str, parameters: Value) -> Value {
        self.command(Command::of_chromium(name, parameters)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(super) fn command(&self, command: Command) -> Result<Value, CmdError> {
        self.ask(self.client.issue_cmd(command))
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn ask<T>(&self, answer: impl Future<Output = T>) -> T {
        runtime().block_on(answer)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if thread::panicking() {
            let address = self.ask(self.client.current_url()).map(String::from).unwrap_or_default();
            eprintln!("the browser shows {address}:\n{}", self.read().unwrap_or_else(|error| error));
        }
        // A browser that is gone has nothing to close.
        let _ = self.ask(self.client.clone().close());
    }
}

/// What the driver is asked to start.
fn wanted(driver: &Driver, profile: &TempDir, has_scripts: bool) -> Value {
    let profile = format!("--user-data-dir={}", profile.path().display());
    let flags = [
        "--headless=new",
        // Tests may run as root, for whom Chromium refuses its sandbox.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--lang=en-US",
        "--window-size=1280,900",
        // The pages are on this machine, and nothing else is looked for.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        &profile,
    ];
    let mut options = json!({ "binary": driver.browser(), "args": flags });
    if !has_scripts {
        options["prefs"] = json!({ "profile.managed_default_content_settings.javascript": 2 });
    }
    let patience = u64::try_from(PATIENCE.as_millis()).expect("a minute");
    json!({
        "browserName": "chrome",
        "goog:chromeOptions": options,
        "goog:loggingPrefs": { "browser": "ALL" },
        // So that a test sees a dialog.
        "unhandledPromptBehavior": "ignore",
        "timeouts": { "pageLoad": patience, "script": patience },
    })
}

/// A place among the browsers that run at the same time: more of them would only take the processors from each other.
struct Turn;

const TURNS: usize = 2;
static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN: Condvar = Condvar::new();

impl Turn {
    fn take() -> Self {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = GIVEN.wait_while(taken, |taken| *taken >= TURNS).unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        GIVEN.notify_one();
    }
}
