//! The protocol over buffers, and workers that are shell scripts: late, dying, talking nonsense.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::Client;
use super::protocol::{self, Answer, Asked, Facts, Failure, Reply, Request, VERSION};
use super::serve::answer_all;
use super::*;
use crate::Rejection;
use crate::measurer::{Backend, Notice, Timed};
use crate::quarantine::Platform;
use crate::testing::{cache, cubin, problem, specs};
use warpsmith::Error;
use warpsmith::build::{Built, Cubin};
use warpsmith::internal::Raise;
use warpsmith::spec::Arch;

const FACTS: &str = r#"{"device":{"name":"NVIDIA H200","capability":{"major":9,"minor":0},"sms":132,
    "shared_per_block":232448,"shared_per_sm":233472,"threads_per_sm":2048,"l2_bytes":62914560,"clock_mhz":1980,
    "memory_gb_per_s":4917},"driver":[13,0]}"#;

/// Machine code that nobody runs.
fn built(spec: Spec, cubin: Cubin) -> Built {
    // SAFETY: nobody loads it.
    unsafe { Built::unproven(spec, Arc::new(cubin)) }
}

fn facts() -> Facts {
    serde_json::from_str(FACTS).unwrap()
}

/// The architecture of these facts is the preset, so that specs fit.
#[test]
fn facts_are_a_device() {
    let device = facts().device().unwrap();
    assert_eq!((device.name(), device.arch()), ("NVIDIA H200", &Arch::H200));
    assert_eq!(device.driver_version().to_string(), "13.0");
    let unknown = FACTS.replace(r#""major":9"#, r#""major":3"#);
    assert!(serde_json::from_str::<Facts>(&unknown).unwrap().device().unwrap_err().is_unsupported());
}

/// Kernels with two stages are wrong, and leave the backend unusable. Those that are there are launched.
struct Told {
    usable: bool,
    images: Vec<Vec<u8>>,
}

impl Backend for Told {
    fn platform(&mut self) -> Result<Platform> {
        facts().device().map(|device| Platform::new(device.name(), device.driver_version()))
    }

    fn admit(&mut self, built: &Built, launching: Notice<'_>) -> Result<Admission> {
        let (spec, cubin) = (built.of(), built.cubin());
        launching()?;
        self.images.push(cubin.image().to_vec());
        self.usable = spec.variant().stages != 2;
        Ok(if self.usable {
            Admission::Passed { worst: self.images.len() as f64 / 8.0 }
        } else {
            Admission::Refused(Rejection::Wrong("wrong".to_owned()))
        })
    }

    fn screen(&mut self, spec: &Spec, launching: Notice<'_>) -> Result<Timed<f64>> {
        if spec.variant().stages != 3 {
            launching()?;
        }
        match spec.variant().stages {
            1 => Ok(Timed::Took(12.625)),
            3 => Ok(Timed::Absent),
            _ => Err(Error::driver("out of memory")),
        }
    }

    fn duel(&mut self, _: &Spec, _: &Spec, pairs: usize, launching: Notice<'_>) -> Result<Timed<Vec<(f64, f64)>>> {
        launching()?;
        Ok(Timed::Took(vec![(0.1, 1.0 / 3.0); pairs]))
    }
}

fn setup() -> Setup {
    Setup::new(&problem(), 16)
}

fn open(version: u32) -> Vec<u8> {
    let Asked::Open { setup, .. } = Asked::open(&setup()).unwrap() else { panic!("it is said otherwise") };
    request(0, Asked::Open { version, setup })
}

fn request(number: u64, what: Asked) -> Vec<u8> {
    protocol::line(&Request { number, what }).unwrap()
}

fn admit(number: u64, spec: &Spec) -> Vec<u8> {
    let cubin = cubin();
    let (variant, about) = (*spec.variant(), warpsmith::internal::about(&cubin).clone());
    let what = Asked::Admit { variant, about, image_bytes: cubin.image().len() as u64 };
    [request(number, what), cubin.image().to_vec()].concat()
}

/// What a worker that hears this says, and whether it is still usable.
fn replies(heard: &[u8]) -> (Vec<Reply>, Result<bool>) {
    let mut said = Vec::new();
    let open = |asked: Setup, _: Option<Told>| {
        assert_eq!(asked, setup());
        Ok((Told { usable: true, images: Vec::new() }, facts(), Arch::H200))
    };
    let ended = answer_all(heard, &mut said, open, |backend| backend.usable);
    let mut said = &said[..];
    let replies = std::iter::from_fn(|| protocol::hear(&mut said).unwrap()).collect();
    (replies, ended)
}

fn ready() -> Answer {
    Answer::ready(&facts()).unwrap()
}

#[test]
fn every_request_has_its_answer() {
    let [one, two, three, four] = specs();
    let screen = |number, spec: &Spec| request(number, Asked::Screen { variant: *spec.variant() });
    let (incumbent, challenger) = (*one.variant(), *three.variant());
    let duel = request(5, Asked::Duel { incumbent, challenger, pairs: 3 });
    let heard = [
        open(VERSION),
        admit(1, &one),
        screen(2, &one),
        screen(3, &three),
        screen(4, &four),
        duel,
        admit(6, &two),
        admit(7, &one),
    ];
    let (replies, ended) = replies(&heard.concat());
    let answers = [
        (0, ready(), false),
        (1, Answer::Launching, false),
        (1, Answer::Admitted(Admission::Passed { worst: 0.125 }), false),
        (2, Answer::Launching, false),
        (2, Answer::Screened(Timed::Took(12.625)), false),
        (3, Answer::Screened(Timed::Absent), false),
        (4, Answer::Launching, false),
        (4, Answer::Failed(Failure::from(Error::driver("out of memory"))), false),
        (5, Answer::Launching, false),
        (5, Answer::Duelled(Timed::Took(vec![(0.1, 1.0 / 3.0); 3])), false),
        (6, Answer::Launching, false),
        // The last: nothing is answered by what is unusable.
        (6, Answer::Admitted(Admission::Refused(Rejection::Wrong("wrong".to_owned()))), true),
    ];
    assert_eq!(replies, answers.map(|(to, answer, last)| Reply { to, answer, last }));
    assert!(!ended.unwrap());
}

#[test]
fn a_worker_says_what_it_does_not_understand() {
    for version in [VERSION - 1, VERSION + 1] {
        let (replies_, ended) = replies(&open(version));
        assert!(ended.unwrap());
        let [Reply { answer: Answer::Failed(_), last: true, .. }] = &replies_[..] else { panic!("{replies_:?}") };
        let said = format!("{replies_:?}");
        assert!(
            said.contains(&format!("protocol version {version}, this worker speaks 4; remedy: use a worker")),
            "{said}"
        );
    }

    let [one] = specs();
    let unopened = replies(&admit(1, &one)).0;
    assert!(matches!(&unopened[..], [Reply { answer: Answer::Failed(_), last: true, .. }]), "{unopened:?}");
    let torn = admit(1, &one);
    let (torn, ended) = replies(&[open(VERSION), torn[..torn.len() - 3].to_vec()].concat());
    assert!(matches!(&torn[1].answer, Answer::Failed(_)) && ended.unwrap(), "{torn:?}");
    let (nonsense, ended) = replies(&[open(VERSION), b"hello\n".to_vec()].concat());
    assert_eq!(nonsense.len(), 1);
    assert!(ended.unwrap_err().to_string().contains("`hello` is no message"));
    assert!(replies(b"").1.unwrap(), "nothing asked is nothing wrong");
}

/// The first request is read by the worker of another version, whatever that makes of a setup.
#[test]
fn the_first_request_and_its_answer_are_as_they_were() {
    let first = String::from_utf8(open(1)).unwrap();
    assert!(first.starts_with(r#"{"open":{"version":1,"setup":{"#), "{first}");
    let (replies, _) = replies(br#"{"open":{"version":5,"setup":"of another kind"}}"#);
    assert!(format!("{replies:?}").contains("protocol version 5"), "{replies:?}");
    let old = r#"{"answer":{"ready":{"version":1,"device":{"of":"another kind"}}},"last":false}"#;
    let command = WorkerCommand::new("sh").arg("-c").arg(format!("read request; echo '{old}'; exec sleep 1000"));
    let error = Client::new(command, setup()).device().map(|_| ()).unwrap_err();
    assert!(error.is_unsupported(), "{error:?}");
    let expected =
        "the worker speaks version 1 of the protocol, this program version 4; remedy: use a worker of the same";
    assert!(error.to_string().starts_with(expected), "{error}");
}

/// It is given what it has opened before, and where it opens nothing there is nothing left to ask.
#[test]
fn a_worker_is_told_again_what_it_is_for() {
    let [one] = specs();
    let told = |number, m: u32| request(number, Asked::open(&Setup::new(&problem(), m)).unwrap());
    let heard = [told(0, 16), admit(1, &one), told(2, 32), admit(3, &one), told(4, 64), admit(5, &one)];
    let open = |asked: Setup, before: Option<Told>| match asked.timed_rows()?.iter().sum() {
        64 => Err(Error::driver("out of memory")),
        m => {
            assert_eq!(before.is_some(), m == 32u32);
            Ok((before.unwrap_or(Told { usable: true, images: Vec::new() }), facts(), Arch::H200))
        }
    };
    let mut said = Vec::new();
    assert!(answer_all(&heard.concat()[..], &mut said, open, |backend| backend.usable).unwrap());
    let replies: Vec<Reply> =
        String::from_utf8(said).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let passed = |worst| Answer::Admitted(Admission::Passed { worst });
    let answers = [
        (0, ready(), false),
        (1, Answer::Launching, false),
        (1, passed(0.125), false),
        (2, ready(), false),
        (3, Answer::Launching, false),
        (3, passed(0.25), false),
        (4, Answer::Failed(Failure::from(Error::driver("out of memory"))), true),
    ];
    assert_eq!(replies, answers.map(|(to, answer, last)| Reply { to, answer, last }));
}

/// What the scripts below say: `hear` reads a request and `image` what follows it, `say` answers.
const WORDS: &str = r#"
    hear() { read request; n=${request#*'"number":'}; n=${n%%,*}; }
    image() { head -c $image >/dev/null; }
    say() { echo "{\"to\":$n,\"answer\":$1,\"last\":false}"; }
    launch() { say '"launching"'; }
    pass() { say '{"admitted":{"passed":{"worst":0.5}}}'; }
"#;

/// A worker that gets ready and then does as the script says.
fn script(then: &str) -> WorkerCommand {
    let (ready, image) = (String::from_utf8(protocol::line(&ready()).unwrap()).unwrap(), cubin().image().len());
    WorkerCommand::new("sh")
        .arg("-c")
        .arg(format!("{WORDS}\nimage={image}; ready() {{ say '{}'; }}; read request; n=0; ready; {then}", ready.trim()))
}

fn client(then: &str) -> Client {
    Client::new(script(then), setup())
}

/// Time enough for a script to come to its end, on a machine that others use, too.
const MOMENT: Duration = Duration::from_millis(1500);

/// One that waits for no more than a moment.
fn impatient(then: &str) -> Client {
    let mut client = client(then);
    client.deadline = MOMENT;
    client
}

fn admitted(client: &mut Client) -> Result<Admission> {
    let [spec] = specs();
    client.admit(&built(spec, cubin()), &mut || Ok(()))
}

const PASSED: Admission = Admission::Passed { worst: 0.5 };

#[test]
fn a_kernel_whose_worker_does_not_answer_hangs() {
    let mut client = impatient("hear; launch; exec sleep 1000");
    let start = Instant::now();
    for starts in 1..3 {
        assert_eq!(admitted(&mut client).unwrap(), Admission::Refused(Rejection::Hangs));
        assert_eq!(client.starts(), starts);
    }
    assert!(start.elapsed() < Duration::from_secs(60), "nobody waited for sleep");
}

/// An image that no pipe holds, to a worker that does not read it.
#[test]
fn writing_to_a_worker_that_hangs_does_not_hang() {
    let [spec] = specs();
    let large = built(spec, warpsmith_testing::cubins::cubin(&vec![7; 4 << 20]));
    let admission = impatient("hear; launch; exec sleep 1000").admit(&large, &mut || Ok(())).unwrap();
    assert_eq!(admission, Admission::Refused(Rejection::Hangs));
    let error = impatient("exec sleep 1000").admit(&large, &mut || Ok(())).unwrap_err();
    assert!(error.to_string().contains("no answer within 1.5 s"), "{error}");
}

#[test]
fn a_kernel_whose_worker_faults_crashes() {
    for (signal, number) in [("SEGV", 11), ("BUS", 7), ("ILL", 4), ("FPE", 8), ("TRAP", 5)] {
        let then = format!("hear; launch; echo 'an odd thing' >&2; kill -{signal} $$");
        let Admission::Refused(Rejection::Crashes(how)) = admitted(&mut client(&then)).unwrap() else {
            panic!("{signal}");
        };
        assert!(how.contains(&format!("signal: {number}")) && how.ends_with("after saying: an odd thing"), "{how}");
    }
}

#[test]
fn what_is_not_the_kernels_fault_is_an_error() {
    let why = |then: &str| admitted(&mut impatient(then)).unwrap_err().to_string();
    assert!(why("hear; launch; kill -KILL $$").contains("signal: 9"));
    assert!(why("hear; launch; echo hello; exec sleep 1000").contains("`hello` is no message"));
    // A panic, an abort without memory, a library that ends the process.
    for (then, how) in [("exit 101", "exit status: 101"), ("kill -ABRT $$", "signal: 6"), ("exit", "exit status: 0")] {
        let said = why(&format!("hear; launch; echo 'thread panicked: missing symbol' >&2; {then}"));
        assert!(said.contains(how) && said.contains("says nothing of the kernel"), "{said}");
        assert!(said.ends_with("after saying: thread panicked: missing symbol"), "{said}");
    }
    // Whatever it is, before the kernel was launched.
    for (then, how) in [
        ("kill -SEGV $$", "signal: 11"),
        ("kill -BUS $$", "signal: 7"),
        ("exit 101", "exit status: 101"),
        ("exec sleep 1000", "no answer within 1.5 s"),
    ] {
        let said = why(&format!("hear; {then}"));
        assert!(said.contains(how) && said.contains("says nothing of the kernel"), "{said}");
    }
    // The device is another than the spec is for.
    let [spec] = specs();
    let other = Spec::new(spec.problem(), spec.variant(), &Arch::A100).unwrap();
    let mut client = client("exec sleep 1000");
    let refused = client.admit(&built(other, cubin()), &mut || Ok(())).unwrap_err();
    assert!(refused.is_unsupported() && refused.to_string().contains("NVIDIA H200"), "{refused}");
}

/// The next kernel has another worker, and an answer of its own.
#[test]
fn a_worker_that_answers_out_of_turn_is_replaced() {
    let temp = tempfile::tempdir().unwrap();
    for (index, (then, why)) in [
        // An answer to something else, to another request, nothing but a notice, twice, unasked.
        ("hear; say '{\"screened\":{\"took\":1.0}}'; exec sleep 1000", "something else"),
        ("hear; n=77; pass; exec sleep 1000", "request 1 was answered by one to 77"),
        ("hear; n=0; pass; exec sleep 1000", "request 1 was answered by one to 0"),
        ("hear; echo '{\"to\":1,\"answer\":\"launching\",\"last\":true}'; exec sleep 1000", "something else"),
        ("n=0; pass; exec sleep 1000", "answered by one to 0|nobody had asked for"),
        ("hear; image; pass; pass; exec sleep 1000", "answered by one to 1|nobody had asked for"),
    ]
    .into_iter()
    .enumerate()
    {
        // The second worker does what it should.
        let mark = temp.path().join(index.to_string());
        let then = format!("[ -e {0} ] || {{ : >{0}; {then}; }}; hear; launch; pass", mark.display());
        let mut client = impatient(&then);
        client.deadline = Duration::from_secs(20);
        let mut found = admitted(&mut client);
        if let Ok(first) = &found {
            // It answered the first request well.
            assert_eq!((first, client.starts()), (&PASSED, 1), "{then}");
            found = admitted(&mut client);
        }
        let said = found.unwrap_err().to_string();
        assert!(why.split('|').any(|why| said.contains(why)), "{then}: {said}");
        assert_eq!((admitted(&mut client).unwrap(), client.starts()), (PASSED, 2), "{then}");
    }
}

#[test]
fn a_worker_that_does_not_get_ready_is_an_error() {
    let start = |command: WorkerCommand| Client::new(command, setup()).device().map(|_| ()).unwrap_err();
    let mut slow = Client::new(WorkerCommand::new("sleep").arg("1000"), setup());
    slow.opening = Duration::from_millis(300);
    assert!(slow.device().unwrap_err().to_string().contains("no answer within 0.3 s"));
    assert!(start(WorkerCommand::new("true")).to_string().contains("exit status: 0"));
    assert!(start(WorkerCommand::new("/nowhere/at/all")).is_unsupported());
    let failed = Failure::from(Error::missing_library("there is no driver"));
    let said = protocol::line(&Reply { to: 0, answer: Answer::Failed(failed), last: true }).unwrap();
    let said = format!("read request; echo '{}'", String::from_utf8_lossy(&said).trim());
    let error = start(WorkerCommand::new("sh").arg("-c").arg(said));
    assert!(error.is_missing_library() && error.to_string() == "in the worker process: there is no driver", "{error}");
}

/// A worker that runs goes on with other rows; one for another device is another.
#[test]
fn another_setup_is_for_the_same_worker() {
    let then = "hear; image; launch; pass; hear; ready; hear; image; launch; pass; hear; say '{\"failed\":{\"class\":\"driver\",\"text\":\"no memory\"}}'";
    let mut client = impatient(then);
    assert_eq!((admitted(&mut client).unwrap(), client.starts()), (PASSED, 1));
    client.turn_to(Setup::new(&problem(), 32));
    assert_eq!((admitted(&mut client).unwrap(), client.starts()), (PASSED, 1));
    client.turn_to(setup());
    let error = admitted(&mut client).unwrap_err();
    assert_eq!(error.to_string(), "in the worker process: no memory");
    // Another worker, which was told of nothing yet.
    assert_eq!((admitted(&mut client).unwrap(), client.starts()), (PASSED, 2));
    client.turn_to(setup().device(1));
    assert_eq!((admitted(&mut client).unwrap(), client.starts()), (PASSED, 3));
    // One that does not get ready again.
    let mut client = impatient("hear; image; launch; pass; hear; exec sleep 1000");
    client.opening = MOMENT;
    assert_eq!(admitted(&mut client).unwrap(), PASSED);
    client.turn_to(Setup::new(&problem(), 32));
    assert_eq!(admitted(&mut client).unwrap_err().to_string(), "the worker did not get ready: no answer within 1.5 s");
}

#[test]
fn a_kernel_is_admitted_anew_for_another_setup() {
    let temp = tempfile::tempdir().unwrap();
    let [good] = specs();
    let cache = cache(temp.path(), &[good]);
    let script = script(
        "hear; image; launch; pass; hear; ready; hear; image; launch; pass; hear; launch; say '{\"screened\":{\"took\":1.5}}'",
    );
    let mut measurer = WorkerMeasurer::new(script, &cache, setup());
    assert_eq!(measurer.admit(&good).unwrap(), PASSED);
    measurer.turn_to(Setup::new(&problem(), 32));
    assert!(measurer.screen(&good).unwrap_err().to_string().contains("was not admitted"));
    assert_eq!((measurer.admit(&good).unwrap(), measurer.screen(&good).unwrap()), (PASSED, 1.5));
    assert_eq!(measurer.starts(), 1);
}

/// What /proc says of a process: its state and its group.
fn stat(id: &str) -> Option<(String, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.nth(1)?.to_owned()))
}

/// One that dies between two requests is replaced, and nobody is blamed.
#[test]
fn a_worker_that_died_idle_is_replaced() {
    let temp = tempfile::tempdir().unwrap();
    let mark = temp.path().join("mark");
    let then = format!("[ -e {0} ] || {{ echo $$ >{0}; exit; }}; hear; launch; pass", mark.display());
    let mut client = client(&then);
    client.device().unwrap();
    // Dead, and not buried by anybody yet.
    let is_zombie = || {
        let id = std::fs::read_to_string(&mark).unwrap_or_default();
        stat(&id).is_some_and(|(state, _)| state == "Z")
    };
    while !is_zombie() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(admitted(&mut client).unwrap(), PASSED);
    assert_eq!(client.starts(), 2);
}

/// Processes that the worker has started, and that hold its pipes: they go with it, however it goes.
#[test]
fn what_a_worker_has_started_is_killed_with_it() {
    let temp = tempfile::tempdir().unwrap();
    // Threads and files of this process that are of the worker's pipes cannot be told from those of other tests; whoever
    // holds the other ends can.
    for (index, then) in
        ["exec sleep 1000", "hear; launch; kill -SEGV $$", "exit 3", "hear; echo hello"].iter().enumerate()
    {
        let mark = temp.path().join(index.to_string());
        let then = format!("sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; {then}", mark.display());
        let mut client = impatient(&then);
        client.device().unwrap();
        while !mark.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let child = std::fs::read_to_string(&mark).unwrap();
        let start = Instant::now();
        let _ = admitted(&mut client);
        drop(client);
        // Init, or whoever adopts it, buries it.
        let lives = || stat(&child).is_some_and(|(state, _)| state != "Z");
        while lives() {
            assert!(start.elapsed() < Duration::from_secs(20), "{then}: {:?}", stat(&child));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(start.elapsed() < Duration::from_secs(5), "nobody waited for it");
    }
}

#[test]
fn a_hang_is_quarantined_for_the_next_measurer() {
    let temp = tempfile::tempdir().unwrap();
    let [good, bad] = specs();
    let cache = cache(temp.path(), &[good, bad]);
    let measurer = || {
        let command = script("hear; image; launch; pass; hear; launch; exec sleep 1000");
        WorkerMeasurer::new(command, &cache, setup()).deadline(MOMENT)
    };
    let mut first = measurer();
    assert_eq!(first.admit(&good).unwrap(), PASSED);
    assert_eq!(first.admit(&bad).unwrap(), Admission::Refused(Rejection::Hangs));
    let mut second = measurer();
    let reason = Rejection::Quarantined(Rejection::Hangs.to_string());
    assert_eq!(second.admit(&bad).unwrap(), Admission::Refused(reason));
    // A worker tells which driver there is; it was asked for nothing else.
    assert_eq!((first.starts(), second.starts()), (1, 1));
    assert_eq!(second.admit(&good).unwrap(), PASSED);
}

/// A worker whose environment is broken ends the tuning, whatever kernel it is asked about, and nothing is quarantined.
#[test]
fn a_broken_environment_quarantines_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let all = specs::<3>();
    let cache = cache(temp.path(), &all);
    for (then, is_error, kernels) in [
        ("hear; launch; echo 'missing symbol cuMemcpyDtoDAsync_v2' >&2; exit 101", true, 3),
        ("hear; launch; kill -ABRT $$", true, 3),
        ("hear; kill -SEGV $$", true, 3),
        ("hear; launch; kill -SEGV $$", false, 3),
        ("hear; launch; exec sleep 1000", false, 1),
    ] {
        for _ in 0..2 {
            let mut measurer = WorkerMeasurer::new(script(then), &cache, setup()).deadline(MOMENT);
            for spec in &all[..kernels] {
                match measurer.admit(spec) {
                    Err(error) => assert!(is_error && error.is_driver(), "{then}: {error}"),
                    Ok(Admission::Refused(Rejection::Crashes(_) | Rejection::Hangs)) => assert!(!is_error, "{then}"),
                    Ok(admission) => panic!("{then}: {admission}"),
                }
            }
        }
        assert!(!temp.path().join("cubins/quarantine").exists(), "{then}");
    }
}
