//! The protocol over buffers, and workers that are shell scripts: late, dying, talking nonsense.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::Client;
use super::protocol::{self, Answer, Facts, Failure, Reply, Request, VERSION};
use super::serve::answer_all;
use super::*;
use crate::build::{self, Cubin};
use crate::error::Error;
use crate::spec::Arch;
use crate::tune::Rejection;
use crate::tune::keeper::{Stand, Timed};
use crate::tune::testing::{cubin, forge, problem, specs};

const FACTS: &str = r#"{"name":"NVIDIA H200","capability":[9,0],"sms":132,"shared_per_block":232448,"l2_bytes":62914560,"driver":[13,0]}"#;

fn facts() -> Facts {
    serde_json::from_str(FACTS).unwrap()
}

/// The architecture of these facts is the preset, so that specs fit.
#[test]
fn facts_are_a_device() {
    let device = facts().device().unwrap();
    assert_eq!((device.name(), device.arch()), ("NVIDIA H200", &Arch::H200));
    assert_eq!(device.driver_version().to_string(), "13.0");
    let unknown = FACTS.replace("[9,0]", "[3,5]");
    assert!(serde_json::from_str::<Facts>(&unknown).unwrap().device().unwrap_err().is_unsupported());
}

/// Kernels with two stages are wrong, and leave the stand unusable.
struct Told {
    usable: bool,
    images: Vec<Vec<u8>>,
}

impl Stand for Told {
    fn admit(&mut self, spec: &Spec, cubin: &Arc<Cubin>) -> Result<Admission> {
        self.images.push(cubin.image().to_vec());
        self.usable = spec.variant().stages != 2;
        Ok(if self.usable {
            Admission::Passed { worst: self.images.len() as f64 / 8.0 }
        } else {
            Admission::Refused(Rejection::Wrong("wrong".to_owned()))
        })
    }

    fn screen(&mut self, spec: &Spec) -> Result<Timed<f64>> {
        match spec.variant().stages {
            1 => Ok(Timed::Took(12.625)),
            3 => Ok(Timed::Absent),
            _ => Err(Error::driver("out of memory")),
        }
    }

    fn duel(&mut self, _: &Spec, _: &Spec, pairs: usize) -> Result<Timed<Vec<(f64, f64)>>> {
        Ok(Timed::Took(vec![(0.1, 1.0 / 3.0); pairs]))
    }
}

fn setup() -> Setup {
    Setup::new(&problem(), 16)
}

fn open(version: u32) -> Vec<u8> {
    protocol::line(&Request::Open { version, setup: setup() }).unwrap()
}

fn admit(spec: &Spec) -> Vec<u8> {
    let cubin = cubin();
    let (variant, about) = (*spec.variant(), cubin.about().clone());
    let request = Request::Admit { variant, about, image_bytes: cubin.image().len() as u64 };
    [protocol::line(&request).unwrap(), cubin.image().to_vec()].concat()
}

/// What a worker that hears this says, and whether it is still usable.
fn replies(heard: &[u8]) -> (Vec<Reply>, Result<bool>) {
    let mut said = Vec::new();
    let open = |asked: Setup| {
        assert_eq!(asked, setup());
        Ok((Told { usable: true, images: Vec::new() }, facts(), Arch::H200))
    };
    let ended = answer_all(heard, &mut said, open, |stand| stand.usable);
    let mut said = &said[..];
    let replies = std::iter::from_fn(|| protocol::hear(&mut said).unwrap()).collect();
    (replies, ended)
}

fn ready() -> Answer {
    Answer::Ready { version: VERSION, device: facts() }
}

#[test]
fn every_request_has_its_answer() {
    let [one, two, three, four] = specs();
    let screen = |spec: &Spec| protocol::line(&Request::Screen { variant: *spec.variant() }).unwrap();
    let (incumbent, challenger) = (*one.variant(), *three.variant());
    let duel = protocol::line(&Request::Duel { incumbent, challenger, pairs: 3 }).unwrap();
    let heard =
        [open(VERSION), admit(&one), screen(&one), screen(&three), screen(&four), duel, admit(&two), admit(&one)];
    let (replies, ended) = replies(&heard.concat());
    let answers = [
        (ready(), false),
        (Answer::Admitted(Admission::Passed { worst: 0.125 }), false),
        (Answer::Screened(Timed::Took(12.625)), false),
        (Answer::Screened(Timed::Absent), false),
        (Answer::Failed(Failure::from(Error::driver("out of memory"))), false),
        (Answer::Duelled(Timed::Took(vec![(0.1, 1.0 / 3.0); 3])), false),
        // The last: nothing is answered by what is unusable.
        (Answer::Admitted(Admission::Refused(Rejection::Wrong("wrong".to_owned()))), true),
    ];
    assert_eq!(replies, answers.map(|(answer, last)| Reply { answer, last }));
    assert!(!ended.unwrap());
}

#[test]
fn a_worker_says_what_it_does_not_understand() {
    let (replies_, ended) = replies(&open(VERSION + 1));
    assert!(ended.unwrap());
    let [Reply { answer: Answer::Failed(_), last: true }] = &replies_[..] else { panic!("{replies_:?}") };
    assert!(format!("{replies_:?}").contains("protocol version 2, this worker speaks 1"), "{replies_:?}");

    let [one] = specs();
    let unopened = replies(&admit(&one)).0;
    assert!(matches!(&unopened[..], [Reply { answer: Answer::Failed(_), last: true }]), "{unopened:?}");
    let torn = admit(&one);
    let (torn, ended) = replies(&[open(VERSION), torn[..torn.len() - 3].to_vec()].concat());
    assert!(matches!(&torn[1].answer, Answer::Failed(_)) && ended.unwrap(), "{torn:?}");
    let (nonsense, ended) = replies(&[open(VERSION), b"hello\n".to_vec()].concat());
    assert_eq!(nonsense.len(), 1);
    assert!(ended.unwrap_err().to_string().contains("`hello` is no message"));
    assert!(replies(b"").1.unwrap(), "nothing asked is nothing wrong");
}

/// A worker that gets ready and then does as the script says.
fn script(then: &str) -> WorkerCommand {
    let ready = String::from_utf8(protocol::line(&Reply { answer: ready(), last: false }).unwrap()).unwrap();
    WorkerCommand::new("sh").arg("-c").arg(format!("read request; echo '{}'; {then}", ready.trim()))
}

fn client(then: &str) -> Client {
    Client::new(script(then), setup())
}

/// One that waits for no more than a moment.
fn impatient(then: &str) -> Client {
    let mut client = client(then);
    client.deadline = Duration::from_millis(300);
    client
}

fn admitted(client: &mut Client) -> Result<Admission> {
    let [spec] = specs();
    client.admit(&spec, &Arc::new(cubin()))
}

#[test]
fn a_kernel_whose_worker_does_not_answer_hangs() {
    let mut client = impatient("exec sleep 1000");
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
    let large = build::testing::cubin(&vec![7; 4 << 20]);
    let admission = impatient("exec sleep 1000").admit(&spec, &Arc::new(large)).unwrap();
    assert_eq!(admission, Admission::Refused(Rejection::Hangs));
}

#[test]
fn a_kernel_whose_worker_dies_crashes() {
    let reason = |then: &str| match admitted(&mut client(then)).unwrap() {
        Admission::Refused(Rejection::Crashes(how)) => how,
        admission => panic!("{admission}"),
    };
    let how = reason("read request; kill -SEGV $$");
    assert!(how.contains("signal: 11"), "{how}");
    let how = reason("read request; echo 'a device-side assert' >&2; exit 3");
    assert!(how.contains("exit status: 3") && how.ends_with("after saying: a device-side assert"), "{how}");
    assert!(reason("read request").contains("exit status: 0"));
}

#[test]
fn what_is_not_the_kernels_fault_is_an_error() {
    let why = |then: &str| admitted(&mut client(then)).unwrap_err().to_string();
    assert!(why("read request; kill -KILL $$").contains("signal: 9"));
    assert!(why("read request; echo hello; exec sleep 1000").contains("`hello` is no message"));
    let other = protocol::line(&Reply { answer: Answer::Screened(Timed::Took(1.0)), last: false }).unwrap();
    assert!(
        why(&format!("read request; echo '{}'; exec sleep 1000", String::from_utf8_lossy(&other).trim()))
            .contains("else")
    );
    // The device is another than the spec is for.
    let [spec] = specs();
    let other = Spec::new(spec.problem(), spec.variant(), &Arch::A100).unwrap();
    let refused = client("exec sleep 1000").admit(&other, &Arc::new(cubin())).unwrap_err();
    assert!(refused.is_unsupported() && refused.to_string().contains("NVIDIA H200"), "{refused}");
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
    let said = protocol::line(&Reply { answer: Answer::Failed(failed), last: true }).unwrap();
    let said = format!("read request; echo '{}'", String::from_utf8_lossy(&said).trim());
    let error = start(WorkerCommand::new("sh").arg("-c").arg(said));
    assert!(error.is_missing_library() && error.to_string() == "in the worker process: there is no driver", "{error}");
}

/// One that dies between two requests is replaced, and nobody is blamed.
#[test]
fn a_worker_that_died_idle_is_replaced() {
    let temp = tempfile::tempdir().unwrap();
    let mark = temp.path().join("mark");
    let passed = Reply { answer: Answer::Admitted(Admission::Passed { worst: 0.5 }), last: false };
    let passed = String::from_utf8(protocol::line(&passed).unwrap()).unwrap();
    let then =
        format!("[ -e {0} ] || {{ echo $$ >{0}; exit; }}; read request; echo '{1}'", mark.display(), passed.trim());
    let mut client = client(&then);
    client.device().unwrap();
    // Dead, and not buried by anybody yet.
    let is_zombie = || {
        let id = std::fs::read_to_string(&mark).unwrap_or_default();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
        stat.contains(") Z ")
    };
    while !is_zombie() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(admitted(&mut client).unwrap(), Admission::Passed { worst: 0.5 });
    assert_eq!(client.starts(), 2);
}

#[test]
fn a_hang_is_quarantined_for_the_next_laboratory() {
    let temp = tempfile::tempdir().unwrap();
    let [spec] = specs();
    let forge = forge(temp.path(), &[spec]);
    let laboratory = || {
        let command = script("exec sleep 1000");
        WorkerLaboratory::new(command, &forge, setup()).deadline(Duration::from_millis(300))
    };
    let mut first = laboratory();
    assert_eq!(first.admit(&spec).unwrap(), Admission::Refused(Rejection::Hangs));
    let mut second = laboratory();
    let reason = Rejection::Quarantined(Rejection::Hangs.to_string());
    assert_eq!(second.admit(&spec).unwrap(), Admission::Refused(reason));
    assert_eq!((first.starts(), second.starts()), (1, 0));
}
