//! The model that makes vectors of texts.

use std::sync::Arc;

use drupe_agent::{EmbeddingModel, ModelProfile, Price, budget::UnknownPrice};

use super::{Backend, Models, Provider};
use crate::{
    error::{ModelsError, Unusable},
    wire::WireEmbedding,
};

impl Models {
    /// The model that makes vectors of texts; none where nothing is set. Unlike other models it has no stand-in: vectors of two
    /// models cannot be compared.
    pub fn embedding(&self) -> Option<&Arc<dyn EmbeddingModel>> {
        self.embedding.as_ref()
    }

    pub(super) fn make_embedding(&self) -> Result<Option<Arc<dyn EmbeddingModel>>, ModelsError> {
        let Some(named) = &self.settings.embedding else { return Ok(None) };
        let unusable =
            |why: &str| ModelsError::NoEmbeddings { model: named.clone(), reason: Unusable(why.to_owned()) };
        let Some((provider, model)) = named.split_once('/').filter(|(_, model)| !model.trim().is_empty())
        else {
            return Err(unusable("write `provider/model`"));
        };
        let Some(known) = self.providers.get(provider) else {
            let variable = self.variable(provider).map(str::to_owned);
            let (model, provider) = (named.clone(), provider.to_owned());
            return Err(ModelsError::NotConfigured { model, provider, variable });
        };
        let Backend::Wire(wire) = &known.backend else {
            return Err(unusable("its provider is no server that makes vectors"));
        };
        if wire.embeddings().is_none() {
            return Err(unusable(
                "vectors come from providers of the kinds `openai` and `openai_chat`; many vendors have an address that speaks \
                 like the latter",
            ));
        }
        let profile = self.embedding_profile(known, model);
        if let (None, Some(limit)) = (&profile.price, &self.settings.cost_limit) {
            let unknown = UnknownPrice { limit: limit.clone(), model: profile.name };
            return Err(ModelsError::UnknownPrice(unknown));
        }
        Ok(Some(Arc::new(WireEmbedding::new(Arc::clone(wire), Arc::clone(&known.gate), model, profile))))
    }

    /// Its name and what its input takes: by the operator's word, else by the catalogue. It has no output.
    fn embedding_profile(&self, provider: &Provider, model: &str) -> ModelProfile {
        let name = format!("{}/{model}", provider.settings.name);
        let profiles = [name.as_str(), model].map(|name| self.settings.profiles.get(name)?.input_usd);
        let listed = self.settings.embeddings.get(&format!("{}/{model}", provider.shipped_as)).copied();
        let usd = profiles.into_iter().flatten().next().or(listed);
        ModelProfile { price: usd.map(|usd| Price::flat(usd, usd, 0.0)), ..super::offline_profile(&name) }
    }
}
