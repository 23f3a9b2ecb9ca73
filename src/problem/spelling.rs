//! How a problem is written and read.

use std::fmt;

use super::{Activation, Form, Operation, Problem};
use crate::error::{Error, Result};
use crate::format::ScaleLayout;
use crate::spelling::{number, prefixed, spelled, word};

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(groups) = self.groups {
            write!(f, "grouped{groups}.")?;
        }
        match self.operation {
            Operation::Gemm(Activation::None) => f.write_str("gemm")?,
            Operation::Gemm(activation) => write!(f, "gemm.{activation}")?,
            Operation::DualGemm(activation) => write!(f, "dual_gemm.{activation}")?,
        }
        write!(f, ":{}*{}>{}:n{}:k{}", self.a, self.b, self.c, self.n, self.k)?;
        if self.scales != ScaleLayout::Linear {
            write!(f, ":sf{}", self.scales)?;
        }
        if self.k_factors {
            f.write_str(":k_factors")?;
        }
        if self.row_scale {
            f.write_str(":row_scale")?;
        }
        self.bias.map_or(Ok(()), |format| write!(f, ":bias_{format}"))?;
        if self.gathered {
            f.write_str(":gathered")?;
        }
        if self.slots {
            f.write_str(":slots")?;
        }
        match self.form {
            Form::Given => {}
            Form::Prepared => f.write_str(":prepared")?,
            Form::Expanded => f.write_str(":expanded")?,
        }
        self.routing.top_k.map_or(Ok(()), |k| write!(f, ":top{k}"))?;
        self.routing.skew.map_or(Ok(()), |skew| write!(f, ":skew{skew}"))?;
        self.m_up_to.map_or(Ok(()), |m| write!(f, ":m{m}"))
    }
}

const GRAMMAR: &str = "expected [groupedG.]OP:A*B>C:nN:kK[:sf128x4][:k_factors][:row_scale][:bias_F][:gathered][:slots][:prepared|:expanded][:topK][:skewS][:mM], OP = gemm, gemm.ACT or dual_gemm.ACT";

spelled!(Problem, "problem", parse);

fn parse(text: &str) -> Result<Problem> {
    let wrong = |part: &str| Error::parse(format!("cannot read `{part}`: {GRAMMAR}"));
    let mut segments = text.split(':').peekable();
    let operation = segments.next().unwrap_or_default();
    let (groups, operation) = match operation.strip_prefix("grouped") {
        Some(rest) => {
            let (groups, rest) = rest.split_once('.').ok_or_else(|| wrong(operation))?;
            (Some(number(groups).ok_or_else(|| wrong(operation))?), rest)
        }
        None => (None, operation),
    };
    let mut problem = match operation.split_once('.') {
        None if operation == "gemm" => Problem::gemm(),
        // Whatever has no activation has one spelling.
        Some(("gemm", activation)) if activation != Activation::None.word() => {
            Problem::gemm().activation(activation.parse()?)
        }
        Some(("dual_gemm", activation)) => Problem::dual_gemm(activation.parse()?),
        _ => return Err(wrong(operation)),
    };
    problem.groups = groups;

    let formats = segments.next().unwrap_or_default();
    let (operands, c) = formats.split_once('>').ok_or_else(|| wrong(formats))?;
    let (a, b) = operands.split_once('*').ok_or_else(|| wrong(formats))?;
    problem = problem.a(a.parse()?).b(b.parse()?).c(c.parse()?);

    let mut extent = |prefix: &str| {
        let segment = segments.next().unwrap_or_default();
        prefixed(segment, prefix).ok_or_else(|| wrong(segment))
    };
    problem.n = extent("n")?;
    problem.k = extent("k")?;

    if let Some(layout) = segments.next_if(|segment| segment.starts_with("sf")) {
        problem.scales = word(&[ScaleLayout::Swizzled128x4], ScaleLayout::word, "scale layout", &layout[2..])?;
    }
    problem.k_factors = segments.next_if_eq(&"k_factors").is_some();
    problem.row_scale = segments.next_if_eq(&"row_scale").is_some();
    if let Some(bias) = segments.next_if(|segment| segment.starts_with("bias_")) {
        problem.bias = Some(bias["bias_".len()..].parse()?);
    }
    problem.gathered = segments.next_if_eq(&"gathered").is_some();
    problem.slots = segments.next_if_eq(&"slots").is_some();
    if segments.next_if_eq(&"prepared").is_some() {
        problem = problem.prepared();
    } else if segments.next_if_eq(&"expanded").is_some() {
        problem = problem.expanded();
    }
    if let Some(top) = segments.next_if(|segment| segment.starts_with("top")) {
        problem.routing.top_k = Some(prefixed(top, "top").ok_or_else(|| wrong(top))?);
    }
    if let Some(skew) = segments.next_if(|segment| segment.starts_with("skew")) {
        problem.routing.skew = Some(prefixed(skew, "skew").ok_or_else(|| wrong(skew))?);
    }
    if let Some(m) = segments.next_if(|segment| segment.starts_with('m')) {
        problem.m_up_to = Some(prefixed(m, "m").ok_or_else(|| wrong(m))?);
    }
    match segments.next() {
        Some(rest) => Err(wrong(rest)),
        None => Ok(problem),
    }
}
