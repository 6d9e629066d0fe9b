//! Vectors of texts, in the form of OpenAI's `/embeddings`, which the servers of Chat Completions took over.
//!
//! Source: <https://platform.openai.com/docs/api-reference/embeddings/create>, read on 2026-11-26. The form of the numbers is not
//! asked for: plain ones are what all of them give to those who say nothing.

use std::sync::Arc;

use drupe_agent::{Dispatch, EmbeddingModel, Embeddings, ModelFault, ModelProfile};
use drupe_extension_api::FailureClass;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use reqwest::{
    Body,
    header::{ACCEPT, HeaderValue},
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{WireProvider, fault, listing, sent::Sent};
use crate::{gate::Gate, source::Broken};

/// Bytes of an answer: far more than the most texts of a request have as vectors.
const LONGEST: usize = 32 << 20;
/// Numbers of a vector. The largest models have 4,096.
const MOST_NUMBERS: usize = 16_384;

/// A model for vectors of a [`WireProvider`].
pub(crate) struct WireEmbedding {
    asked: Arc<Asked>,
    profile: ModelProfile,
}

struct Asked {
    provider: Arc<WireProvider>,
    gate: Arc<Gate>,
    name: String,
    /// The name that the provider knows it by.
    model: String,
}

impl WireEmbedding {
    pub(crate) fn new(
        provider: Arc<WireProvider>,
        gate: Arc<Gate>,
        model: &str,
        profile: ModelProfile,
    ) -> Self {
        let asked = Asked { provider, gate, name: profile.name.clone(), model: model.to_owned() };
        Self { asked: Arc::new(asked), profile }
    }
}

impl EmbeddingModel for WireEmbedding {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn embed(
        &self,
        texts: Arc<[String]>,
        deadline: Instant,
        dispatch: Dispatch,
    ) -> BoxFuture<'static, Result<Embeddings, ModelFault>> {
        let asked = Arc::clone(&self.asked);
        Box::pin(async move {
            let place = asked.gate.enter(&asked.name, deadline).await?;
            match asked.ask(&texts, &dispatch).await {
                Ok(embeddings) => {
                    place.answered();
                    Ok(embeddings)
                }
                Err(Broken { fault, whose }) => {
                    let fault = asked.provider.named(&asked.name, fault);
                    place.failed(&Broken { fault: fault.clone(), whose });
                    Err(fault)
                }
            }
        })
    }
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [String],
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Vector>,
    #[serde(default)]
    usage: Option<Counted>,
}

#[derive(Deserialize)]
struct Vector {
    /// Its text's place; where a server leaves it out, they are in order.
    index: Option<usize>,
    embedding: Vec<f32>,
}

#[derive(Deserialize)]
struct Counted {
    prompt_tokens: Option<u64>,
}

impl Asked {
    async fn ask(&self, texts: &[String], dispatch: &Dispatch) -> Result<Embeddings, Broken> {
        let wrong = |error: serde_json::Error| ModelFault::fatal(FailureClass::Internal, error.to_string());
        let body = serde_json::to_string(&Request { model: &self.model, input: texts }).map_err(wrong)?;
        let path = self.provider.embeddings().unwrap_or_default();
        let request = self
            .provider
            .client()?
            .post(self.provider.join(path, None))
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .body(Body::wrap(Sent::new(body, dispatch, &self.name)));
        let mut response = request.send().await.map_err(|error| fault::of_transport(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = listing::whole(&mut response, LONGEST, "its answer with vectors").await?;
        if !status.is_success() {
            return Err(fault::of_response(status, &headers, &body, Timestamp::now(), (&self.model, &[])));
        }
        if let Some(broken) = fault::in_place_of_answer(&body) {
            return Err(broken);
        }
        Ok(read(&body, texts.len())?)
    }
}

/// A vector of each text, or what is wrong with the answer.
fn read(body: &[u8], texts: usize) -> Result<Embeddings, ModelFault> {
    let wrong = |why: &str| {
        let text = format!("its answer holds no vectors that could be used: {why}");
        ModelFault::fatal(FailureClass::Config, text).began()
    };
    let answer: Answer = serde_json::from_slice(body).map_err(|error| wrong(&error.to_string()))?;
    if answer.data.len() != texts {
        return Err(wrong(&format!("it has {} for {texts} texts", answer.data.len())));
    }
    let mut vectors = vec![Vec::new(); texts];
    for (at, vector) in answer.data.into_iter().enumerate() {
        match vectors.get_mut(vector.index.unwrap_or(at)) {
            Some(place) if place.is_empty() => *place = vector.embedding,
            _ => return Err(wrong("two are of one text")),
        }
    }
    let numbers = vectors.first().map_or(0, Vec::len);
    if !(1..=MOST_NUMBERS).contains(&numbers) || vectors.iter().any(|vector| vector.len() != numbers) {
        return Err(wrong(&format!("their lengths are not one from 1 to {MOST_NUMBERS}")));
    }
    Ok(Embeddings { vectors, input_tokens: answer.usage.and_then(|counted| counted.prompt_tokens) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_stand_in_the_order_of_their_texts_and_an_answer_that_lacks_one_is_refused() {
        let two = r#"{"data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [1, 2.5]}],
                      "usage": {"prompt_tokens": 7, "total_tokens": 7}}"#;
        let vectors = vec![vec![1.0, 2.5], vec![3.0, 4.0]];
        assert_eq!(read(two.as_bytes(), 2), Ok(Embeddings { vectors, input_tokens: Some(7) }));
        let bare = r#"{"data": [{"embedding": [1]}]}"#;
        let embeddings = Embeddings { vectors: vec![vec![1.0]], input_tokens: None };
        assert_eq!(read(bare.as_bytes(), 1), Ok(embeddings), "servers leave much out");
        for (bad, why) in [
            (r#"{"data": []}"#, "it has 0 for 1 texts"),
            (r#"{"data": [{"index": 1, "embedding": [1]}]}"#, "two are of one text"),
            (r#"{"data": [{"embedding": []}]}"#, "their lengths are not one from 1 to 16384"),
            (r#"{"data": [{"embedding": [1e39]}]}"#, "number out of range at line 1 column 29"),
        ] {
            let fault = read(bad.as_bytes(), 1).err().map(|fault| fault.message).unwrap_or_default();
            assert!(fault.ends_with(why), "{bad}: {fault}");
        }
        let twice = r#"{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}"#;
        assert!(read(twice.as_bytes(), 2).is_err());
        let uneven = r#"{"data": [{"embedding": [1]}, {"embedding": [1, 2]}]}"#;
        assert!(read(uneven.as_bytes(), 2).is_err());
    }
}
