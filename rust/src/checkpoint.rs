//! The special tokens that a checkpoint's files name beside tokenizer.json, as transformers 5 reads them.

use serde_json::{Map, Value as Json};
use tokenizers::{AddedToken, Tokenizer};

/// What has a name in every tokenizer; other keys that end in `_token` are the model's own.
const NAMES: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

#[derive(Default)]
pub struct SpecialTokens {
    named: Vec<(String, String)>,
    /// `named`, as JSON.
    pub variables: String,
    pub text_end: Option<u32>,
    pub pad: Option<u32>,
    /// Chat templates by name; one without a name is "default".
    templates: Vec<(String, String)>,
}

fn object_of(file: &str, text: &str) -> Result<Map<String, Json>, String> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Json::Object(object)) => Ok(object),
        Ok(_) => Err(format!("{file}: not a JSON object")),
        Err(error) => Err(format!("{file}: {error}")),
    }
}

/// A token's object, with the defaults that Python's AddedToken has.
fn token_of(object: &Map<String, Json>, special: Option<bool>) -> Option<AddedToken> {
    let flag = |name: &str| object.get(name).and_then(Json::as_bool);
    let special = special.or(flag("special")).unwrap_or(false);
    let token = AddedToken::from(object.get("content")?.as_str()?, special)
        .single_word(flag("single_word").unwrap_or(false))
        .lstrip(flag("lstrip").unwrap_or(false))
        .rstrip(flag("rstrip").unwrap_or(false));
    Some(token.normalized(flag("normalized").unwrap_or(!special)))
}

/// A token as a text or an object; None: null, or neither.
fn named_token(value: &Json) -> Option<AddedToken> {
    match value {
        Json::String(content) => Some(AddedToken::from(content.as_str(), true)),
        Json::Object(object) => token_of(object, Some(true)),
        _ => None,
    }
}

fn same(a: &AddedToken, b: &AddedToken) -> bool {
    let flags = |of: &AddedToken| (of.single_word, of.lstrip, of.rstrip, of.normalized, of.special);
    a.content == b.content && flags(a) == flags(b)
}

/// The members of `object` that name one special token each, and those that list more.
fn read_named(object: &Map<String, Json>, named: &mut Vec<(String, AddedToken)>, more: &mut Vec<AddedToken>) {
    for (key, value) in object {
        if NAMES.contains(&key.as_str()) || key.ends_with("_token") {
            if let Some(token) = named_token(value) {
                named.retain(|(other, _)| other != key);
                named.push((key.clone(), token));
            }
        } else if key == "extra_special_tokens" || key == "additional_special_tokens" {
            match value {
                Json::Array(tokens) => more.extend(tokens.iter().filter_map(named_token)),
                Json::Object(tokens) => {
                    named.extend(tokens.iter().filter_map(|(key, value)| Some((key.clone(), named_token(value)?))));
                }
                _ => {}
            }
        }
    }
}

/// `chat_template`: a text, or a list of objects with a name each.
fn templates_of(config: &Map<String, Json>) -> Vec<(String, String)> {
    let text = |of: &Json, key: &str| of.get(key).and_then(Json::as_str).map(str::to_string);
    match config.get("chat_template") {
        Some(Json::String(source)) => vec![("default".into(), source.clone())],
        Some(Json::Array(list)) => list.iter().filter_map(|of| Some((text(of, "name")?, text(of, "template")?))).collect(),
        Some(Json::Object(of)) => {
            of.iter().filter_map(|(name, source)| Some((name.clone(), source.as_str()?.to_string()))).collect()
        }
        _ => Vec::new(),
    }
}

/// Adds to `tokenizer` what the files name and it does not have.
pub fn add_special_tokens(tokenizer: &mut Tokenizer, config: &str, map: &str) -> Result<SpecialTokens, String> {
    let config = object_of("tokenizer_config.json", config)?;
    let (mut named, mut more) = (Vec::new(), Vec::new());
    read_named(&config, &mut named, &mut more);
    let mut decoder: Vec<(u64, AddedToken)> = Vec::new();
    match config.get("added_tokens_decoder") {
        Some(Json::Object(tokens)) => {
            for (id, token) in tokens {
                let id = id.parse().map_err(|_| format!("tokenizer_config.json: added_tokens_decoder: '{id}' is not an id"))?;
                let token = token.as_object().and_then(|object| token_of(object, None));
                decoder.push((id, token.ok_or(format!("tokenizer_config.json: added_tokens_decoder: {id} is not a token"))?));
            }
            decoder.sort_by_key(|(id, _)| *id);
        }
        _ => read_named(&object_of("special_tokens_map.json", map)?, &mut named, &mut more),
    }
    for (_, token) in &mut named {
        if let Some((_, known)) = decoder.iter().find(|(_, known)| known.content == token.content) {
            *token = known.clone();
        }
    }
    let known = tokenizer.get_added_tokens_decoder();
    let mut added: Vec<AddedToken> =
        decoder.into_iter().map(|(_, token)| token).filter(|token| !known.values().any(|other| same(token, other))).collect();
    for token in named.iter().map(|(_, token)| token).chain(&more) {
        let has = |other: &AddedToken| other.content == token.content;
        if !known.values().any(has) && !added.iter().any(has) {
            added.push(token.clone());
        }
    }
    for token in &mut added {
        token.special |= named.iter().any(|(_, other)| other.content == token.content);
    }
    tokenizer.add_tokens(added).map_err(|error| error.to_string())?;
    let special = named.iter().map(|(_, token)| token).chain(&more).map(|token| {
        let mut token = token.clone();
        token.special = true;
        token
    });
    let special: Vec<AddedToken> = special.collect();
    tokenizer.add_special_tokens(special).map_err(|error| error.to_string())?;
    let named: Vec<(String, String)> = named.into_iter().map(|(key, token)| (key, token.content)).collect();
    let variables = Json::Object(named.iter().map(|(key, token)| (key.clone(), Json::String(token.clone()))).collect());
    Ok(SpecialTokens { variables: variables.to_string(), named, templates: templates_of(&config), ..SpecialTokens::default() })
}

impl SpecialTokens {
    pub fn named(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(key, _)| key == name).map(|(_, token)| token.as_str())
    }

    pub fn template(&self, name: &str) -> Option<&str> {
        self.templates.iter().find(|(other, _)| other == name).map(|(_, source)| source.as_str())
    }

    /// The end of a text is `eos_token`; where no file has it, the first id with which generation ends.
    pub fn find_ends(&mut self, tokenizer: &Tokenizer, generation: &str) -> Result<(), String> {
        let generation = object_of("generation_config.json", generation)?;
        let id_of = |name: &str| {
            let id = generation.get(name)?;
            let first = id.as_array().map_or(Some(id), |ids| ids.first())?;
            first.as_u64().and_then(|id| u32::try_from(id).ok())
        };
        let token = |name: &str| self.named(name).and_then(|token| tokenizer.token_to_id(token));
        let text_end = token("eos_token").or_else(|| id_of("eos_token_id"));
        self.pad = token("pad_token").or_else(|| id_of("pad_token_id")).or(text_end);
        self.text_end = text_end;
        Ok(())
    }
}
