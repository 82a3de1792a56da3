//! The C interface that rust/store.h declares, over the `object_store` crate: one runtime of a few threads for the
//! process, HTTP/1 connections kept open, bodies copied once, into the caller's memory.

use std::cell::RefCell;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{select, Either};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, BackoffConfig, ClientConfigKey, ClientOptions, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, PutOptions, RetryConfig,
};
use percent_encoding::percent_decode_str;
use reqwest::header::{HeaderMap, HeaderValue, AUTHORIZATION};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, SemaphorePermit};
use url::{Host, Url};

use crate::profile::{self, Profile};
use crate::{bytes_of, caught, free, last_error, EvenkeelText, REFUSED};

/// Codes of store.h, in addition to those of the other headers.
const NOT_FOUND: i32 = 3;
const DENIED: i32 = 4;
const UNAVAILABLE: i32 = 5;
const CHANGED: i32 = 6;
const SHORT: i32 = 7;

/// Threads that drive connections; bodies are copied by the callers' threads.
const THREADS: usize = 4;
/// Requests of this process that may be in flight.
const MAX_REQUESTS: usize = 64;
/// A read is made of ranges of this size, some of them at once.
const RANGE_BYTES: usize = 8 << 20;
const RANGES_AT_ONCE: usize = 4;
/// A larger object is written in parts.
const PART_BYTES: usize = 8 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A whole call may take this many times the time-out of a request.
const DEADLINE_TIMEOUTS: u32 = 8;
/// Times that a body without an ETag, one that ends early, or a wrong range is asked for again.
const CONTINUATIONS: usize = 3;
const MAX_REDIRECTS: usize = 5;
/// Of one folder of the hub.
const MAX_LISTED: usize = 2_000_000;
const HUB_ADVICE: &str = "; check the name and revision, and for a private or gated repository HF_TOKEN or 'hf auth login'";
/// A request without an answer for this many deviations beyond the usual time is made a second time, as is one whose body
/// stands still for as long; but never sooner than SOONEST, and not for more than one request in twenty.
const SLOW_DEVIATIONS: u64 = 6;
const SOONEST: Duration = Duration::from_millis(200);
const REPEATED_SHARE: u64 = 20;
/// Requests that may be made a second time before there is a share.
const REPEATED_AT_FIRST: u64 = 8;
/// Of a message that comes from outside.
const MESSAGE_BYTES: usize = 300;

static PERMITS: Semaphore = Semaphore::const_new(MAX_REQUESTS);
static REQUESTS: AtomicU64 = AtomicU64::new(0);
static FAILED_REQUESTS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static REQUEST_MICROSECONDS: AtomicU64 = AtomicU64::new(0);
static REPEATED_REQUESTS: AtomicU64 = AtomicU64::new(0);
static USUAL: Mutex<Usual> = Mutex::new(Usual { answers: 0, mean: 0, deviation: 0 });

/// What answers usually take, in microseconds, estimated as TCP estimates its time-outs (RFC 6298).
struct Usual {
    answers: u64,
    mean: u64,
    deviation: u64,
}

impl Usual {
    fn note(&mut self, time: Duration) {
        let time = time.as_micros() as u64;
        if self.answers == 0 {
            (self.mean, self.deviation) = (time, time / 2);
        } else {
            self.deviation = (3 * self.deviation + time.abs_diff(self.mean)) / 4;
            self.mean = (7 * self.mean + time) / 8;
        }
        self.answers += 1;
    }

    fn slow(&self) -> Duration {
        SOONEST.max(Duration::from_micros(self.mean + SLOW_DEVIATIONS * self.deviation))
    }
}

fn usual() -> MutexGuard<'static, Usual> {
    USUAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether one more request may be made a second time, which then counts as such.
fn may_repeat() -> bool {
    let allowed = REPEATED_AT_FIRST + REQUESTS.load(Ordering::Relaxed) / REPEATED_SHARE;
    REPEATED_REQUESTS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |repeated| (repeated < allowed).then_some(repeated + 1)).is_ok()
}

/// A code of store.h and its message.
struct Failure {
    code: i32,
    message: String,
}

fn refused(message: impl Into<String>) -> Failure {
    Failure { code: REFUSED, message: message.into() }
}

type Outcome<T> = Result<T, Failure>;

pub struct EvenkeelStore {
    url: String,
    store: Box<dyn ObjectStore>,
    is_http: bool,
    hub: Option<Hub>,
    deadline: Duration,
}

/// A dataset's repository of the Hugging Face hub. Its files are those of an HTTP server; its listing is the hub's.
struct Hub {
    client: reqwest::Client,
    tree: Url,
}

#[repr(C)]
pub struct EvenkeelStoreOptions {
    endpoint: EvenkeelText,
    region: EvenkeelText,
    ca_file: EvenkeelText,
    virtual_host: bool,
    anonymous: bool,
    allow_http: bool,
    timeout_seconds: f64,
    max_retries: u32,
}

#[repr(C)]
pub struct EvenkeelObject {
    key: EvenkeelText,
    etag: EvenkeelText,
    num_bytes: u64,
}

#[repr(C)]
pub struct EvenkeelStoreCounts {
    requests: u64,
    failed_requests: u64,
    bytes: u64,
    request_microseconds: u64,
    repeated_requests: u64,
}

/// What the last call of this thread found: texts, and views of them.
#[derive(Default)]
struct Found {
    texts: Vec<(String, String)>,
    objects: Vec<EvenkeelObject>,
    body: Vec<u8>,
}

thread_local! {
    static FOUND: RefCell<Found> = RefCell::new(Found::default());
}

fn text_of(text: &str) -> EvenkeelText {
    EvenkeelText { bytes: text.as_ptr(), num_bytes: text.len() }
}

fn keep(found: &mut Found, objects: Vec<ObjectMeta>) {
    found.texts.clear();
    found.objects.clear();
    for object in &objects {
        found.texts.push((object.location.to_string(), object.e_tag.clone().unwrap_or_default()));
    }
    for ((key, etag), object) in found.texts.iter().zip(&objects) {
        found.objects.push(EvenkeelObject { key: text_of(key), etag: text_of(etag), num_bytes: object.size });
    }
}

/// Started by the first store, in the process that reads. Its threads would be missing in a process forked later.
fn runtime() -> Outcome<&'static Runtime> {
    static RUNTIME: OnceLock<Result<(u32, Runtime), String>> = OnceLock::new();
    let started = RUNTIME.get_or_init(|| {
        // Another library of the process may have chosen one; it is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(THREADS)
            .thread_name("evenkeel-store")
            .enable_all()
            .build();
        runtime.map(|runtime| (std::process::id(), runtime)).map_err(|error| error.to_string())
    });
    match started {
        Ok((process, runtime)) if *process == std::process::id() => Ok(runtime),
        Ok(_) => Err(refused("stores were opened before this process was forked; open them after the fork")),
        Err(error) => Err(Failure { code: UNAVAILABLE, message: format!("threads for stores cannot start: {error}") }),
    }
}

/// Counts requests on their way.
#[derive(Debug)]
struct Counted(reqwest::Client);

#[async_trait::async_trait]
impl HttpService for Counted {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        let begin = Instant::now();
        let answer = self.0.call(request).await;
        note_answer(begin, answer.as_ref().ok().map(|answer| answer.status().as_u16()));
        answer
    }
}

fn note_answer(begin: Instant, status: Option<u16>) {
    REQUEST_MICROSECONDS.fetch_add(begin.elapsed().as_micros() as u64, Ordering::Relaxed);
    if status.is_none_or(|status| status >= 400) {
        FAILED_REQUESTS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a request for credentials of a profile.
pub(crate) async fn counted(sent: impl Future<Output = reqwest::Result<reqwest::Response>>) -> reqwest::Result<reqwest::Response> {
    REQUESTS.fetch_add(1, Ordering::Relaxed);
    let begin = Instant::now();
    let answer = sent.await;
    note_answer(begin, answer.as_ref().ok().map(|answer| answer.status().as_u16()));
    answer
}

/// Makes the HTTP clients of a store, also those for its credentials.
#[derive(Debug)]
struct Connector {
    timeout: Duration,
    certificates: Vec<reqwest::Certificate>,
    follows_redirects: bool,
    /// Of the hub. It is not sent on to another host.
    token: Option<String>,
}

/// Servers of files may send their readers elsewhere, but neither to an address without TLS nor into the own network.
fn redirect_policy() -> reqwest::redirect::Policy {
    reqwest::redirect::Policy::custom(|attempt| {
        let first = &attempt.previous()[0];
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error("too many redirects");
        }
        if first.scheme() == "https" && attempt.url().scheme() != "https" {
            return attempt.error("a redirect from https to http");
        }
        if first.host() != attempt.url().host() && is_own_network(attempt.url()) {
            return attempt.error("a redirect into the own network");
        }
        attempt.follow()
    })
}

fn address_of(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.to_ipv4_mapped().map_or(address.into(), Into::into)),
        Host::Domain(_) => None,
    }
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    matches!(url.host(), Some(Host::Domain("localhost"))) || address_of(url).is_some_and(|address| address.is_loopback())
}

fn is_own_network(url: &Url) -> bool {
    let is_private = |address: IpAddr| match address {
        IpAddr::V4(address) => address.is_private() || address.is_link_local() || address.is_unspecified(),
        IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local() || address.is_unspecified(),
    };
    is_loopback(url) || address_of(url).is_some_and(is_private)
}

impl Connector {
    fn client(&self, connect_timeout: Duration, allow_http: bool) -> reqwest::Result<reqwest::Client> {
        let mut headers = HeaderMap::new();
        if let Some(mut value) = self.token.as_ref().and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok()) {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        reqwest::Client::builder()
            .user_agent(concat!("evenkeel/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .http1_only()
            .connect_timeout(connect_timeout.min(self.timeout))
            .read_timeout(self.timeout)
            .pool_max_idle_per_host(MAX_REQUESTS)
            .pool_idle_timeout(Duration::from_secs(20)) // S3 closes idle connections earlier than most
            .redirect(if self.follows_redirects { redirect_policy() } else { reqwest::redirect::Policy::none() })
            .tls_certs_merge(self.certificates.iter().cloned())
            .https_only(!allow_http)
            .build()
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        // The crate's value for metadata services, which answer at once or not at all.
        let is_metadata = options.get_config_value(&ClientConfigKey::ConnectTimeout).as_deref() == Some("1s");
        let connect_timeout = if is_metadata { Duration::from_secs(1) } else { CONNECT_TIMEOUT };
        let client = self
            .client(connect_timeout, allow_http)
            .map_err(|error| object_store::Error::Generic { store: "HTTP", source: Box::new(error) })?;
        Ok(HttpClient::new(Counted(client)))
    }
}

struct Options {
    endpoint: String,
    region: String,
    ca_file: String,
    virtual_host: bool,
    anonymous: bool,
    allow_http: bool,
    timeout: Duration,
    max_retries: usize,
}

/// # Safety
/// The texts must be readable.
unsafe fn options_of(options: &EvenkeelStoreOptions) -> Outcome<Options> {
    let text = |text: EvenkeelText| String::from_utf8(bytes_of(text).to_vec()).map_err(|_| refused("an option that is not UTF-8"));
    Ok(Options {
        endpoint: text(options.endpoint)?,
        region: text(options.region)?,
        ca_file: text(options.ca_file)?,
        virtual_host: options.virtual_host,
        anonymous: options.anonymous,
        allow_http: options.allow_http,
        timeout: Duration::try_from_secs_f64(options.timeout_seconds).map_err(|error| refused(format!("timeout_seconds: {error}")))?,
        max_retries: options.max_retries as usize,
    })
}

impl Options {
    fn retry(&self) -> RetryConfig {
        let backoff = BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(5), base: 4.0 };
        RetryConfig { backoff, max_retries: self.max_retries, retry_timeout: self.timeout * (DEADLINE_TIMEOUTS - 1) }
    }

    fn connector(&self, follows_redirects: bool) -> Outcome<Connector> {
        let mut certificates = Vec::new();
        if !self.ca_file.is_empty() {
            let pem = std::fs::read(&self.ca_file).map_err(|error| refused(format!("ca_file {}: {error}", self.ca_file)))?;
            certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|_| refused(format!("ca_file {}: not PEM certificates", self.ca_file)))?;
            if certificates.is_empty() {
                return Err(refused(format!("ca_file {}: no certificate in it", self.ca_file)));
            }
        }
        Ok(Connector { timeout: self.timeout, certificates, follows_redirects, token: None })
    }

    /// Whether an endpoint without TLS may be used. Credentials travel to loopback only, unless the user says so.
    fn allows_http(&self, endpoint: &str, variable_name: &str) -> Outcome<bool> {
        if !endpoint.starts_with("http://") {
            return Ok(false);
        }
        let url = Url::parse(endpoint).map_err(|error| refused(format!("endpoint: {error}")))?;
        if self.anonymous || self.allow_http || is_true(variable(variable_name)) || is_loopback(&url) {
            return Ok(true);
        }
        Err(refused(format!(
            "the endpoint {endpoint} has no TLS, and credentials would be sent to it; use https://, or set {variable_name}=true if you trust the network"
        )))
    }
}

fn is_true(value: Option<String>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The store of a builder, each cloud's of a type of its own, with what all have in common.
macro_rules! build {
    ($builder:expr, $options:expr, $allow_http:expr, $follows_redirects:expr) => {
        $builder
            .with_retry($options.retry())
            .with_client_options(ClientOptions::new().with_allow_http($allow_http))
            .with_http_connector($options.connector($follows_redirects)?)
            .build()
            .map(|store| Box::new(store) as Box<dyn ObjectStore>)
            .map_err(|error| refused(reason_of(&error)))
    };
}

/// The profile, in the order of AWS's own tools: keys of the environment win over every profile, a profile that the user
/// names wins over web identity and containers, and these win over the default profile. Metadata of instances come last.
fn profile_for(builder: &AmazonS3Builder) -> Outcome<Option<Profile>> {
    let has = |key| builder.get_config_value(&key).is_some_and(|value| !value.is_empty());
    let has_keys = has(AmazonS3ConfigKey::AccessKeyId) || has(AmazonS3ConfigKey::SecretAccessKey);
    let has_service = (has(AmazonS3ConfigKey::WebIdentityTokenFile) && has(AmazonS3ConfigKey::RoleArn))
        || has(AmazonS3ConfigKey::ContainerCredentialsRelativeUri)
        || has(AmazonS3ConfigKey::ContainerCredentialsFullUri);
    if has_keys || (has_service && variable("AWS_PROFILE").is_none()) {
        return Ok(None);
    }
    runtime()?.block_on(Profile::find()).map_err(refused)
}

fn open_s3(bucket: &str, options: &mut Options) -> Outcome<Box<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    options.anonymous |= is_true(builder.get_config_value(&AmazonS3ConfigKey::SkipSignature));
    let profile = if options.anonymous { None } else { profile_for(&builder)? };
    let of_profile = |name: &str| profile.as_ref().and_then(|profile| profile.get(name));
    if options.ca_file.is_empty() {
        options.ca_file = variable("AWS_CA_BUNDLE").or_else(|| of_profile("ca_bundle")).unwrap_or_default();
    }
    let known = |key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    if options.endpoint.is_empty() {
        let of_environment = known(AmazonS3ConfigKey::S3Endpoint).or_else(|| known(AmazonS3ConfigKey::Endpoint));
        options.endpoint = of_environment.or_else(|| profile.as_ref().and_then(Profile::endpoint)).unwrap_or_default();
    }
    if options.region.is_empty() {
        let of_environment = known(AmazonS3ConfigKey::Region).or_else(|| known(AmazonS3ConfigKey::DefaultRegion));
        options.region = of_environment.or_else(|| of_profile("region")).unwrap_or_default();
    }
    options.virtual_host |= is_true(builder.get_config_value(&AmazonS3ConfigKey::VirtualHostedStyleRequest));
    let allow_http = options.allows_http(&options.endpoint, "AWS_ALLOW_HTTP")?;
    if !options.endpoint.is_empty() {
        let mut endpoint = options.endpoint.trim_end_matches('/').to_string();
        if options.virtual_host {
            endpoint = endpoint.replacen("://", &format!("://{bucket}."), 1);
        }
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    if !options.region.is_empty() {
        builder = builder.with_region(options.region.clone());
    }
    if let Some(profile) = profile.filter(Profile::has_credentials) {
        let client = options.connector(false)?.client(CONNECT_TIMEOUT, true).map_err(|error| refused(error.to_string()))?;
        let region = if options.region.is_empty() { "us-east-1".to_string() } else { options.region.clone() };
        builder = builder.with_credentials(Arc::new(profile.credentials(client, region, options.timeout)));
    }
    let builder = builder.with_virtual_hosted_style_request(options.virtual_host).with_skip_signature(options.anonymous);
    build!(builder, options, allow_http, false)
}

fn open_google(bucket: &str, options: &mut Options) -> Outcome<Box<dyn ObjectStore>> {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
    if options.endpoint.is_empty() {
        options.endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl).unwrap_or_default();
    }
    options.anonymous |= is_true(builder.get_config_value(&GoogleConfigKey::SkipSignature));
    let allow_http = options.allows_http(&options.endpoint, "GOOGLE_ALLOW_HTTP")?;
    if !options.endpoint.is_empty() {
        builder = builder.with_base_url(options.endpoint.trim_end_matches('/'));
    }
    build!(builder.with_skip_signature(options.anonymous), options, allow_http, false)
}

fn open_azure(container: &str, options: &mut Options) -> Outcome<Box<dyn ObjectStore>> {
    let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(container);
    if options.endpoint.is_empty() {
        options.endpoint = builder.get_config_value(&AzureConfigKey::Endpoint).unwrap_or_default();
    }
    options.anonymous |= is_true(builder.get_config_value(&AzureConfigKey::SkipSignature));
    let allow_http = options.allows_http(&options.endpoint, "AZURE_ALLOW_HTTP")?;
    if !options.endpoint.is_empty() {
        builder = builder.with_endpoint(options.endpoint.clone());
    }
    build!(builder.with_skip_signature(options.anonymous), options, allow_http, false)
        .map_err(|failure| refused(format!("{}; the account is AZURE_STORAGE_ACCOUNT_NAME", failure.message)))
}

/// No credentials are sent, so that an address without TLS is as good as a public file.
fn open_http(url: &str, options: &Options) -> Outcome<Box<dyn ObjectStore>> {
    build!(HttpBuilder::new().with_url(url), options, url.starts_with("http://"), true)
}

/// As the hub's own library has it.
fn hub_token() -> Option<String> {
    let of_environment = || variable("HF_TOKEN").or_else(|| variable("HUGGING_FACE_HUB_TOKEN"));
    let home = || variable("HF_HOME").or_else(|| variable("HOME").map(|home| format!("{home}/.cache/huggingface")));
    let of_file = || {
        let path = variable("HF_TOKEN_PATH").or_else(|| home().map(|home| format!("{home}/token")))?;
        std::fs::read_to_string(path).ok().map(|token| token.trim().to_string()).filter(|token| !token.is_empty())
    };
    of_environment().or_else(of_file)
}

/// `repository`: datasets/owner/name@revision.
fn open_hub(repository: &str, options: &mut Options) -> Outcome<(Box<dyn ObjectStore>, Hub)> {
    let (name, revision) = repository.split_once('@').ok_or_else(|| refused("no @revision"))?;
    if options.endpoint.is_empty() {
        options.endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_string());
    }
    let endpoint = options.endpoint.trim_end_matches('/').to_string();
    let token = if options.anonymous { None } else { hub_token() };
    options.anonymous |= token.is_none();
    let allow_http = options.allows_http(&endpoint, "HF_ALLOW_HTTP")?;
    // A revision with a slash ("refs%2Fpr%2F1") is written as the hub wants it.
    let address = |text: String| Url::parse(&text).map_err(|error| refused(format!("{text}: {error}")));
    let files = address(format!("{endpoint}/{name}/resolve/{revision}"))?;
    let tree = address(format!("{endpoint}/api/{name}/tree/{revision}"))?;
    let connector = || -> Outcome<Connector> { Ok(Connector { token: token.clone(), ..options.connector(true)? }) };
    let client = connector()?.client(CONNECT_TIMEOUT, allow_http).map_err(|error| refused(error.to_string()))?;
    let store = HttpBuilder::new()
        .with_url(files)
        .with_retry(options.retry())
        .with_client_options(ClientOptions::new().with_allow_http(allow_http))
        .with_http_connector(connector()?)
        .build()
        .map_err(|error| refused(reason_of(&error)))?;
    Ok((Box::new(store), Hub { client, tree }))
}

impl Hub {
    /// The files of a folder, without ETags: the hub's are those of its own storage.
    async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>, (Option<u16>, String)> {
        let mut found = Vec::new();
        let mut url = self.tree.clone();
        url.path_segments_mut().map_err(|()| (None, "no path".to_string()))?.extend(folder.parts().map(|part| part.as_ref().to_string()));
        let mut next = Some(url);
        while let Some(url) = next.take() {
            let failed = |error: reqwest::Error| (error.status().map(|status| status.as_u16()), error.without_url().to_string());
            REQUESTS.fetch_add(1, Ordering::Relaxed);
            let answer = self.client.get(url).send().await.and_then(reqwest::Response::error_for_status).map_err(failed)?;
            next = next_page(answer.headers(), &self.tree);
            let body = answer.bytes().await.map_err(failed)?;
            let entries: Vec<serde_json::Value> = serde_json::from_slice(&body).map_err(|error| (None, format!("the list: {error}")))?;
            for entry in &entries {
                let (Some("file"), Some(path), Some(size)) = (entry["type"].as_str(), entry["path"].as_str(), entry["size"].as_u64()) else { continue };
                let Ok(location) = Path::parse(path) else { continue };
                found.push(ObjectMeta { location, last_modified: Default::default(), size, e_tag: None, version: None });
            }
            if found.len() > MAX_LISTED {
                return Err((None, format!("more than {MAX_LISTED} files in one folder")));
            }
        }
        Ok(found)
    }
}

/// `Link: <https://...>; rel="next"`, on the same host.
fn next_page(headers: &HeaderMap, tree: &Url) -> Option<Url> {
    let link = headers.get("link")?.to_str().ok()?;
    let part = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let next = tree.join(part.split_once('<')?.1.split_once('>')?.0).ok()?;
    (next.host() == tree.host() && next.scheme() == tree.scheme()).then_some(next)
}

fn open(url: &str, mut options: Options) -> Outcome<EvenkeelStore> {
    let _threads = runtime()?.enter();
    let (scheme, bucket) = url.split_once("://").ok_or_else(|| refused("not an address"))?;
    let mut hub = None;
    let store = match scheme {
        "hf" => open_hub(bucket, &mut options).map(|(store, found)| {
            hub = Some(found);
            store
        }),
        "s3" => open_s3(bucket, &mut options),
        "gs" => open_google(bucket, &mut options),
        "az" => open_azure(bucket, &mut options),
        "http" | "https" => open_http(url, &options),
        _ => Err(refused(format!("'{scheme}://' is not one of s3://, gs://, az://, hf://, https://, http://"))),
    }?;
    let deadline = options.timeout * DEADLINE_TIMEOUTS;
    Ok(EvenkeelStore { url: url.to_string(), store, is_http: scheme.starts_with("http") || hub.is_some(), hub, deadline })
}

fn shortened(text: &str) -> String {
    let mut end = text.len().min(MESSAGE_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The status and code of an answer; nothing else of its body, which may have parts of a signature.
fn answer_of(text: &str) -> Option<(u16, String)> {
    let (_, rest) = text.split_once("status code: ")?;
    let status: u16 = rest.get(..3)?.parse().ok()?;
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    let code = code.filter(|code| code.len() < 64 && code.chars().all(|letter| letter.is_ascii_alphanumeric()));
    Some((status, code.map_or(format!("HTTP {status}"), |code| format!("HTTP {status} {code}"))))
}

/// The innermost cause. Outer ones repeat the address, and may have what must not be printed.
fn reason_of(error: &object_store::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let text = cause.to_string();
    if cause.is::<profile::Failure>() {
        return text;
    }
    answer_of(&text).map_or_else(|| shortened(&text), |(_, answer)| answer)
}

impl EvenkeelStore {
    fn failure(&self, key: &str, error: &object_store::Error) -> Failure {
        use object_store::Error::*;
        let outer = error.to_string();
        let reason = reason_of(error);
        let status = answer_of(&outer).map(|(status, _)| status);
        let says = |text: &str| outer.contains(text) || reason.contains(text);
        let is_profile = std::error::Error::source(error).is_some_and(|source| source.is::<profile::Failure>());
        let (code, advice) = match error {
            Unauthenticated { .. } if is_profile => (DENIED, ""),
            _ if is_profile => (UNAVAILABLE, ""),
            // The hub hides what one may not see.
            NotFound { .. } if self.hub.is_some() => (NOT_FOUND, HUB_ADVICE),
            PermissionDenied { .. } | Unauthenticated { .. } if self.hub.is_some() => (DENIED, HUB_ADVICE),
            NotFound { .. } => (NOT_FOUND, ""),
            PermissionDenied { .. } | Unauthenticated { .. } => (DENIED, "; check the credentials and their rights to read and list"),
            Precondition { .. } => (CHANGED, ""),
            _ if says("169.254.169.254") || says("metadata.google.internal") => {
                (DENIED, "; no credentials in the environment, and no metadata service of a cloud answers; give credentials, or for a public bucket AWS_SKIP_SIGNATURE=true (GOOGLE_, AZURE_)")
            }
            _ if says("169.254.170.2") || says("https://sts.") => (DENIED, "; the service of credentials gave none"),
            _ if says("Range request not supported") => {
                (REFUSED, "; a range was requested: the server does not serve ranges, or leads to a page for logging in")
            }
            _ if says("own network") || says("from https to http") || says("too many redirects") => (REFUSED, ""),
            _ if status == Some(416) => (SHORT, ""),
            _ if matches!(status, Some(404)) => (NOT_FOUND, ""),
            _ if matches!(status, Some(401 | 403)) => (DENIED, "; check the credentials and their rights to read and list"),
            _ if !self.is_http && (says("redirect") || matches!(status, Some(300..=399))) => (REFUSED, "; the bucket may be in another region: set AWS_REGION"),
            _ if matches!(status, Some(400)) && (says("Token") || says("Credential")) => (DENIED, "; the credentials expired or are wrong"),
            _ if matches!(status, Some(400..=499)) && !matches!(status, Some(408 | 429)) => (REFUSED, ""),
            _ => (UNAVAILABLE, ""),
        };
        Failure { code, message: format!("{}: {reason}{advice}", self.name_of(key)) }
    }

    fn name_of(&self, key: &str) -> String {
        format!("{}/{key}", self.url)
    }

    fn path_of(&self, key: &str) -> Outcome<Path> {
        let key = if self.is_http { percent_decode_str(key).decode_utf8_lossy() } else { key.into() };
        Path::parse(&*key).map_err(|error| refused(format!("{}: {error}", self.name_of(&key))))
    }

    /// Runs on this thread; the runtime's threads drive the connections.
    fn wait<T>(&self, key: &str, body: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        self.wait_for(self.deadline, key, body)
    }

    fn wait_for<T>(&self, deadline: Duration, key: &str, body: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        runtime()?.block_on(async {
            match tokio::time::timeout(deadline, body).await {
                Ok(done) => done,
                Err(_) => Err(Failure {
                    code: UNAVAILABLE,
                    message: format!("{}: no answer within {:.1} s, retries included", self.name_of(key), deadline.as_secs_f64()),
                }),
            }
        })
    }

    async fn head(&self, key: &str) -> Outcome<ObjectMeta> {
        let path = self.path_of(key)?;
        let _permit = PERMITS.acquire().await;
        // The hub leads to signed addresses, which need not be good for asking alone.
        let options = match self.hub {
            Some(_) => GetOptions { range: Some(GetRange::Bounded(0..1)), ..Default::default() },
            None => GetOptions { head: true, ..Default::default() },
        };
        let found = self.store.get_opts(&path, options).await.map_err(|error| self.failure(key, &error))?;
        self.check_page(key, &found.attributes)?;
        Ok(found.meta)
    }

    fn check_page(&self, key: &str, attributes: &Attributes) -> Outcome<()> {
        let is_page = attributes.get(&Attribute::ContentType).is_some_and(|kind| kind.starts_with("text/html"));
        if self.is_http && is_page && !key.ends_with(".html") && !key.ends_with(".htm") {
            let message = format!("{}: the server answers with an HTML page instead of data: a page for logging in?", self.name_of(key));
            return Err(Failure { code: DENIED, message });
        }
        Ok(())
    }

    async fn list(&self, folder: &str) -> Outcome<Vec<ObjectMeta>> {
        if let Some(hub) = &self.hub {
            let path = self.path_of(folder)?;
            let _permit = PERMITS.acquire().await;
            let mut objects = hub.list(&path).await.map_err(|(status, why)| match status {
                Some(401 | 403) => Failure { code: DENIED, message: format!("{}: {why}{HUB_ADVICE}", self.name_of(folder)) },
                Some(404) => Failure { code: NOT_FOUND, message: format!("{}: {why}{HUB_ADVICE}", self.name_of(folder)) },
                _ => Failure { code: UNAVAILABLE, message: format!("{}: {why}", self.name_of(folder)) },
            })?;
            objects.sort_by(|left, right| left.location.as_ref().cmp(right.location.as_ref()));
            return Ok(objects);
        }
        if self.is_http {
            return Err(refused(format!("{}: an HTTP server cannot be listed; name its files, or a range {{000..127}}", self.url)));
        }
        let path = self.path_of(folder)?;
        let _permit = PERMITS.acquire().await;
        let found = self.store.list_with_delimiter(Some(&path)).await.map_err(|error| self.failure(folder, &error))?;
        let mut objects = found.objects;
        objects.sort_by(|left, right| left.location.as_ref().cmp(right.location.as_ref()));
        Ok(objects)
    }

    fn changed(&self, key: &str, expected: &str, got: &str) -> Failure {
        Failure {
            code: CHANGED,
            message: format!("{}: the object changed: its ETag was {expected}, and is {got} now", self.name_of(key)),
        }
    }

    /// After a precondition that failed: asks for the present ETag, to name it.
    async fn changed_since(&self, key: &str, etag: &str) -> Failure {
        match self.head(key).await {
            Ok(now) => self.changed(key, etag, now.e_tag.as_deref().unwrap_or("unknown")),
            Err(failure) => failure,
        }
    }

    /// The head of an answer, with the permit that its body needs. Of a slow request and its second one the first good
    /// answer counts, and the other is given up.
    async fn answer(&self, path: &Path, options: GetOptions) -> object_store::Result<(GetResult, SemaphorePermit<'static>)> {
        let first = async {
            let permit = PERMITS.acquire().await.expect("never closed");
            let begin = Instant::now();
            let answer = self.store.get_opts(path, options.clone()).await?;
            usual().note(begin.elapsed());
            Ok((answer, permit))
        };
        let mut first = pin!(first);
        let slow = usual().slow();
        match tokio::time::timeout(slow, &mut first).await {
            Ok(answer) => return answer,
            // Not where requests wait for a permit: that would take it from others.
            Err(_) if PERMITS.available_permits() == 0 || !may_repeat() => return first.await,
            Err(_) => {}
        }
        let second = pin!(async {
            let permit = PERMITS.acquire().await.expect("never closed");
            Ok((self.store.get_opts(path, options.clone()).await?, permit))
        });
        match select(first, second).await {
            Either::Left((Ok(answer), _)) | Either::Right((Ok(answer), _)) => Ok(answer),
            Either::Left((Err(_), second)) => second.await,
            Either::Right((Err(_), first)) => first.await,
        }
    }

    async fn read_range(&self, key: &str, path: &Path, etag: &str, offset: u64, out: &mut [u8]) -> Outcome<()> {
        let mut filled = 0;
        let mut why = String::new();
        let mut attempt = 0;
        let mut stood_still = false;
        while attempt <= CONTINUATIONS {
            // What stands still is asked for again at once, without it counting as a failure, but once only.
            if attempt > 0 && !std::mem::take(&mut stood_still) {
                tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
            }
            attempt += 1;
            let begin = offset + filled as u64;
            let options = GetOptions {
                range: Some(GetRange::Bounded(begin..offset + out.len() as u64)),
                // A weak one never matches.
                if_match: (!etag.is_empty() && !etag.starts_with("W/")).then(|| etag.to_string()),
                ..Default::default()
            };
            let (answer, permit) = match self.answer(path, options).await {
                Ok(answer) => answer,
                Err(error) => {
                    let failure = self.failure(key, &error);
                    // A range that was not asked for: the next answer may be right.
                    if failure.code == UNAVAILABLE && failure.message.contains("Requested") && attempt <= CONTINUATIONS {
                        continue;
                    }
                    return Err(if failure.code == CHANGED { self.changed_since(key, etag).await } else { failure });
                }
            };
            // Servers may ignore the condition.
            let got = answer.meta.e_tag.clone().unwrap_or_default();
            if !etag.is_empty() && got != etag {
                return Err(self.changed(key, etag, if got.is_empty() { "unknown" } else { &got }));
            }
            let mut body = answer.into_stream();
            loop {
                let slow = usual().slow();
                let next = match tokio::time::timeout(slow, body.next()).await {
                    Ok(next) => next,
                    Err(_) if attempt == 1 && may_repeat() => {
                        stood_still = true;
                        break;
                    }
                    Err(_) => body.next().await,
                };
                match next {
                    Some(Ok(bytes)) => {
                        let count = bytes.len().min(out.len() - filled);
                        out[filled..filled + count].copy_from_slice(&bytes[..count]);
                        filled += count;
                        BYTES.fetch_add(count as u64, Ordering::Relaxed);
                    }
                    Some(Err(error)) => {
                        why = reason_of(&error);
                        break;
                    }
                    None => {
                        why = "the body ended early".to_string();
                        break;
                    }
                }
            }
            drop((body, permit));
            if filled == out.len() {
                return Ok(());
            }
        }
        let message = format!("{}: {filled} of {} bytes at byte {offset} were delivered: {why}", self.name_of(key), out.len());
        Err(Failure { code: UNAVAILABLE, message })
    }

    async fn read_whole(&self, key: &str, max_bytes: u64) -> Outcome<(ObjectMeta, Vec<u8>)> {
        let path = self.path_of(key)?;
        let mut why = String::new();
        for attempt in 0..=CONTINUATIONS {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_millis(100 << attempt)).await;
            }
            let (answer, permit) = self.answer(&path, GetOptions::default()).await.map_err(|error| self.failure(key, &error))?;
            self.check_page(key, &answer.attributes)?;
            let meta = answer.meta.clone();
            if meta.size > max_bytes {
                return Ok((meta, Vec::new()));
            }
            let mut bytes = Vec::with_capacity(meta.size as usize);
            let mut body = answer.into_stream();
            while let Some(next) = body.next().await {
                match next {
                    Ok(next) if (bytes.len() + next.len()) as u64 <= meta.size => bytes.extend_from_slice(&next),
                    Ok(_) => why = "the body is longer than announced".to_string(),
                    Err(error) => why = reason_of(&error),
                }
            }
            drop((body, permit));
            BYTES.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if bytes.len() as u64 == meta.size {
                return Ok((meta, bytes));
            }
        }
        Err(Failure { code: UNAVAILABLE, message: format!("{}: not all of it was delivered: {why}", self.name_of(key)) })
    }

    /// Makes or replaces an object. A part that is not complete leaves what was there.
    async fn write(&self, key: &str, bytes: Bytes) -> Outcome<()> {
        if self.is_http {
            return Err(refused(format!("{}: objects can be written to s3://, gs:// and az:// only", self.name_of(key))));
        }
        let path = self.path_of(key)?;
        let denied = |error: object_store::Error| {
            let failure = self.failure(key, &error);
            Failure { message: failure.message.replace("to read and list", "to write"), ..failure }
        };
        let _permit = PERMITS.acquire().await;
        if bytes.len() <= PART_BYTES {
            self.store.put_opts(&path, bytes.into(), PutOptions::default()).await.map_err(denied)?;
            return Ok(());
        }
        let mut upload = self.store.put_multipart_opts(&path, Default::default()).await.map_err(denied)?;
        let parts = (0..bytes.len()).step_by(PART_BYTES).map(|begin| bytes.slice(begin..bytes.len().min(begin + PART_BYTES)));
        for part in parts {
            if let Err(error) = upload.put_part(part.into()).await {
                let _ = upload.abort().await;
                return Err(denied(error));
            }
        }
        upload.complete().await.map_err(denied)?;
        Ok(())
    }

    async fn read(&self, key: &str, etag: &str, offset: u64, out: &mut [u8]) -> Outcome<()> {
        let path = self.path_of(key)?;
        let ranges = out.chunks_mut(RANGE_BYTES).enumerate();
        let reads = ranges.map(|(i, range)| self.read_range(key, &path, etag, offset + (i * RANGE_BYTES) as u64, range));
        stream::iter(reads).buffer_unordered(RANGES_AT_ONCE).try_collect().await
    }
}

/// As `caught` of lib.rs.
fn guarded(body: impl FnOnce() -> Outcome<()>) -> i32 {
    caught(|| body().map_err(|failure| (failure.code, failure.message)))
}

/// # Safety
/// `text` must be readable.
unsafe fn key_of<'a>(text: EvenkeelText) -> Outcome<&'a str> {
    std::str::from_utf8(bytes_of(text)).map_err(|_| refused("an address that is not UTF-8"))
}

/// # Safety
/// `out` must be writable, the texts readable.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_store_open(url: EvenkeelText, options: EvenkeelStoreOptions, out: *mut *mut EvenkeelStore) -> i32 {
    *out = std::ptr::null_mut();
    guarded(|| {
        let url = key_of(url)?.trim_end_matches('/');
        let store = open(url, options_of(&options)?).map_err(|failure| Failure { message: format!("{url}: {}", failure.message), ..failure })?;
        *out = Box::into_raw(Box::new(store));
        Ok(())
    })
}

/// # Safety
/// `store` must come from `evenkeel_store_open`, and must not be used afterwards. Null is allowed.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_store_free(store: *mut EvenkeelStore) {
    free(store);
}

/// # Safety
/// `store` must come from `evenkeel_store_open`, `out` must be writable, `key` readable.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_store_head(store: *const EvenkeelStore, key: EvenkeelText, out: *mut EvenkeelObject) -> i32 {
    let store = &*store;
    guarded(|| {
        let key = key_of(key)?;
        let object = store.wait(key, store.head(key))?;
        FOUND.with(|found| {
            let found = &mut *found.borrow_mut();
            keep(found, vec![object]);
            *out = found.objects.remove(0);
        });
        Ok(())
    })
}

/// # Safety
/// As `evenkeel_store_head`.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_store_list(
    store: *const EvenkeelStore,
    folder: EvenkeelText,
    out: *mut *const EvenkeelObject,
    num_objects: *mut usize,
) -> i32 {
    let store = &*store;
    guarded(|| {
        let folder = key_of(folder)?;
        let objects = store.wait(folder, store.list(folder))?;
        FOUND.with(|found| {
            let found = &mut *found.borrow_mut();
            keep(found, objects);
            *out = found.objects.as_ptr();
            *num_objects = found.objects.len();
        });
        Ok(())
    })
}

/// # Safety
/// As `evenkeel_store_head`; `out` must be writable for `num_bytes`.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_store_read(
    store: *const EvenkeelStore,
    key: EvenkeelText,
    etag: EvenkeelText,
    offset: u64,
    out: *mut u8,
    num_bytes: usize,
) -> i32 {
    let store = &*store;
    guarded(|| {
        if num_bytes == 0 {
            return Ok(());
        }
        let (key, etag) = (key_of(key)?, key_of(etag)?);
        let out = std::slice::from_raw_parts_mut(out, num_bytes);
        store.wait(key, store.read(key, etag, offset, out))
    })
}

/// # Safety
/// As `evenkeel_store_head`; `bytes` must be writable.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_store_read_whole(
    store: *const EvenkeelStore,
    key: EvenkeelText,
    max_bytes: u64,
    out: *mut EvenkeelObject,
    bytes: *mut EvenkeelText,
) -> i32 {
    let store = &*store;
    guarded(|| {
        let key = key_of(key)?;
        let (object, body) = store.wait(key, store.read_whole(key, max_bytes))?;
        FOUND.with(|found| {
            let found = &mut *found.borrow_mut();
            keep(found, vec![object]);
            found.body = body;
            *out = found.objects.remove(0);
            *bytes = EvenkeelText { bytes: found.body.as_ptr(), num_bytes: found.body.len() };
        });
        Ok(())
    })
}

/// # Safety
/// As `evenkeel_store_head`; `bytes` must be readable.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_store_write(store: *const EvenkeelStore, key: EvenkeelText, bytes: EvenkeelText) -> i32 {
    let store = &*store;
    guarded(|| {
        let key = key_of(key)?;
        let bytes = Bytes::copy_from_slice(bytes_of(bytes));
        let deadline = store.deadline * (1 + (bytes.len() / PART_BYTES) as u32);
        store.wait_for(deadline, key, store.write(key, bytes))
    })
}

/// # Safety
/// `out` must be writable.
#[no_mangle]
pub unsafe extern "C" fn evenkeel_store_counts(out: *mut EvenkeelStoreCounts) {
    *out = EvenkeelStoreCounts {
        requests: REQUESTS.load(Ordering::Relaxed),
        failed_requests: FAILED_REQUESTS.load(Ordering::Relaxed),
        bytes: BYTES.load(Ordering::Relaxed),
        request_microseconds: REQUEST_MICROSECONDS.load(Ordering::Relaxed),
        repeated_requests: REPEATED_REQUESTS.load(Ordering::Relaxed),
    };
}

#[no_mangle]
pub extern "C" fn evenkeel_store_last_error() -> EvenkeelText {
    last_error()
}
