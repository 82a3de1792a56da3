//! A profile of ~/.aws as AWS's own tools read it: region, endpoint, and credentials from keys, roles, web identity, SSO
//! or a program (`credential_process`). The `aws-config` crate reads it; its requests go through the HTTP client of our
//! stores.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aws_config::profile::{load, ProfileFileCredentialsProvider, ProfileSet};
use aws_config::provider_config::ProviderConfig;
use aws_config::Region;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::Credentials;
use aws_runtime::env_config::file::{EnvConfigFileKind, EnvConfigFiles};
use aws_runtime::env_config::EnvConfigValue;
use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_types::os_shim_internal::{Env, Fs};
use object_store::aws::AwsCredential;
use object_store::CredentialProvider;
use tokio::sync::Mutex;
use url::Url;

/// Of a file of profiles, and of an answer with credentials.
const MAX_BYTES: u64 = 1 << 20;
/// Credentials are requested again this long before they expire,
const REFRESH_BEFORE: Duration = Duration::from_secs(300);
/// but no sooner than this after the last time, so that short-lived ones are not requested for every object.
const REFRESH_PAUSE: Duration = Duration::from_secs(30);
/// After a failure every request gets the same error for this long, so that many threads do not try at once.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
/// Of a reason, which may be what a program wrote.
const MESSAGE_LETTERS: usize = 400;
/// Times that of a request: what a program, and what the whole chain of a profile may take. A store allows eight.
const PROCESS_TIMEOUTS: u32 = 2;
const DEADLINE_TIMEOUTS: u32 = 5;
/// What `timeout` of coreutils returns when it ended a program.
const TIMED_OUT: &str = "exit status: 124";
/// Metadata services, which have no TLS: those of `credential_source`.
const METADATA_HOSTS: [&str; 5] = ["169.254.169.254", "169.254.170.2", "169.254.170.23", "[fd00:ec2::254]", "[fd00:ec2::23]"];
/// A profile with one of these has credentials, or leads to them.
const SOURCES: [&str; 8] = [
    "aws_access_key_id",
    "aws_secret_access_key",
    "credential_process",
    "login_session",
    "role_arn",
    "sso_account_id",
    "sso_session",
    "sso_start_url",
];

/// The two files, as they were read.
#[derive(Clone, PartialEq)]
struct Files {
    config: (PathBuf, String),
    credentials: (PathBuf, String),
}

impl Files {
    fn read(is_named: bool) -> Result<Files, String> {
        let read = |name: &str, default: &str| -> Result<(PathBuf, String), String> {
            let given = variable(name);
            let home = || variable("HOME").unwrap_or_default();
            let path = match &given {
                Some(path) => path.strip_prefix("~/").map_or(PathBuf::from(path), |rest| Path::new(&home()).join(rest)),
                None => Path::new(&home()).join(".aws").join(default),
            };
            match read_text(&path) {
                Ok(text) => Ok((path, text)),
                // A home that cannot be read matters to a user who asks for a profile only.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound || (given.is_none() && !is_named) => Ok((path, String::new())),
                Err(error) => Err(format!("the AWS profiles in {}: {error}", path.display())),
            }
        };
        Ok(Files { config: read("AWS_CONFIG_FILE", "config")?, credentials: read("AWS_SHARED_CREDENTIALS_FILE", "credentials")? })
    }

    fn names(&self) -> String {
        format!("{} or {}", self.config.0.display(), self.credentials.0.display())
    }

    /// For the crate; programs in them end after `limit`.
    fn contents(&self, limit: Duration) -> EnvConfigFiles {
        EnvConfigFiles::builder()
            .with_contents(EnvConfigFileKind::Config, with_limit(&self.config.1, limit))
            .with_contents(EnvConfigFileKind::Credentials, with_limit(&self.credentials.1, limit))
            .build()
    }

    /// Of a file that is not one of profiles: which of the two, and the line.
    async fn explain(&self) -> Option<String> {
        for (kind, (path, text)) in [(EnvConfigFileKind::Config, &self.config), (EnvConfigFileKind::Credentials, &self.credentials)] {
            let file = EnvConfigFiles::builder().with_contents(kind, text.clone()).build();
            if let Err(error) = load(&Fs::real(), &Env::real(), &file, None).await {
                let why = innermost(&error).split_whitespace().collect::<Vec<_>>().join(" ");
                return Some(format!("{}: not a file of AWS profiles: {}", path.display(), why.trim_start_matches("error parsing ")));
            }
        }
        None
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn read_text(path: &Path) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind, Read};
    // A pipe or a device would not end.
    let info = std::fs::metadata(path)?;
    if !info.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a file"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Error::new(ErrorKind::InvalidData, format!("larger than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// The crate waits for a program without an end: `timeout` ends it, with all that it started.
fn with_limit(text: &str, limit: Duration) -> String {
    let limited = |line: &str| {
        let (name, value) = line.split_once('=')?;
        if name.starts_with([' ', '\t']) || !name.trim().eq_ignore_ascii_case("credential_process") {
            return None;
        }
        // As the crate finds comments, which would otherwise take the closing quote with them.
        let comment = [" #", " ;", "\t#", "\t;"].iter().filter_map(|mark| value.find(mark)).min();
        let command = value[..comment.unwrap_or(value.len())].trim().replace('\'', r"'\''");
        Some(format!("{name}= timeout -k 1 {:.3} sh -c '{command}'", limit.as_secs_f64()))
    };
    text.lines().map(|line| limited(line).unwrap_or_else(|| line.to_string()) + "\n").collect()
}

fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// A profile that is there.
pub struct Profile {
    name: String,
    files: Files,
    sections: ProfileSet,
}

impl Profile {
    /// The one of AWS_PROFILE, which must be there, else `default` if it is.
    pub async fn find() -> Result<Option<Profile>, String> {
        let named = variable("AWS_PROFILE");
        let files = Files::read(named.is_some())?;
        let name = named.clone().unwrap_or_else(|| "default".to_string());
        let Ok(sections) = load(&Fs::real(), &Env::real(), &files.contents(Duration::ZERO), Some(name.clone().into())).await else {
            return Err(files.explain().await.unwrap_or_else(|| format!("{}: not files of AWS profiles", files.names())));
        };
        if sections.get_profile(&name).is_some() {
            return Ok(Some(Profile { name, files, sections }));
        }
        if named.is_none() {
            return Ok(None);
        }
        let (config, credentials) = (files.config.0.display(), files.credentials.0.display());
        Err(format!("AWS_PROFILE is '{name}', and there is no such profile: expected [profile {name}] in {config} or [{name}] in {credentials}"))
    }

    pub fn get(&self, name: &str) -> Option<String> {
        self.sections.get(name).map(str::to_string).filter(|value| !value.is_empty())
    }

    /// `endpoint_url`, also of its `services`.
    pub fn endpoint(&self) -> Option<String> {
        let value = EnvConfigValue::new().profile("endpoint_url").service_id("S3");
        value.load(&Env::real(), Some(&self.sections)).map(|(url, _)| url.into_owned())
    }

    pub fn has_credentials(&self) -> bool {
        SOURCES.iter().any(|name| self.sections.get(name).is_some())
    }

    /// `timeout`: of a request.
    pub fn credentials(self, client: reqwest::Client, region: String, timeout: Duration) -> ProfileCredentials {
        let uses_sso = self.sections.get("sso_session").is_some() || self.sections.get("sso_start_url").is_some();
        let portal = Portal { client, status: Arc::default() };
        let source = Source { name: self.name, uses_sso, portal, region, timeout };
        let provider = source.provider(&self.files);
        let kept = Kept { files: self.files, looked: Instant::now(), provider, credential: None, failure: None };
        ProfileCredentials { source, kept: Mutex::new(kept) }
    }
}

/// How credentials of the profile are requested.
#[derive(Debug)]
struct Source {
    name: String,
    uses_sso: bool,
    portal: Portal,
    region: String,
    timeout: Duration,
}

impl Source {
    fn provider(&self, files: &Files) -> ProfileFileCredentialsProvider {
        let config = ProviderConfig::without_region()
            .with_region(Some(Region::new(self.region.clone())))
            .with_http_client(self.portal.clone());
        let files = files.contents(self.timeout * PROCESS_TIMEOUTS);
        ProfileFileCredentialsProvider::builder().configure(&config).profile_files(files).profile_name(self.name.clone()).build()
    }

    async fn request(&self, provider: &ProfileFileCredentialsProvider, files: &str) -> Result<Credentials, Failure> {
        self.portal.status.store(0, Ordering::Relaxed);
        let deadline = self.timeout * DEADLINE_TIMEOUTS;
        let failure = |is_passing: bool, why: String| Failure { is_passing, message: format!("the AWS profile '{}' of {files}: {why}", self.name) };
        match tokio::time::timeout(deadline, provider.provide_credentials()).await {
            Err(_) => Err(failure(true, format!("no credentials within {:.1} s", deadline.as_secs_f64()))),
            Ok(Err(error)) => {
                let (is_passing, why) = self.explain(&error);
                Err(failure(is_passing, why))
            }
            Ok(Ok(found)) if found.expiry().is_some_and(|end| end <= SystemTime::now()) => {
                Err(failure(false, "the credentials that it gives have expired".to_string()))
            }
            Ok(Ok(found)) => Ok(found),
        }
    }

    /// Whether it may pass, and the reason.
    fn explain(&self, error: &CredentialsError) -> (bool, String) {
        let mut causes: Vec<&(dyn Error + 'static)> = vec![error];
        while let Some(inner) = causes[causes.len() - 1].source() {
            causes.push(inner);
        }
        let is_lost = |cause: &&(dyn Error + 'static)| cause.downcast_ref::<ConnectorError>().is_some_and(|lost| !lost.is_user());
        let status = self.portal.status.load(Ordering::Relaxed);
        let is_passing = causes.iter().any(is_lost) || status == 429 || status >= 500;
        // The innermost one has the reason; of a file its name is in the one around it.
        let last = causes.len() - 1;
        let mut why = causes[last].to_string();
        if last > 0 && causes[last].is::<std::io::Error>() {
            why = format!("{}: {why}", causes[last - 1]);
        }
        why = why.replacen("ProfileFile provider could not be built: ", "", 1);
        why = why.replacen("Error retrieving credentials: external process", "its credential_process", 1);
        why = why.replacen("Error retrieving credentials from external process", "its credential_process", 1);
        if why.contains(TIMED_OUT) {
            why = format!("its credential_process did not end within {:.1} s", (self.timeout * PROCESS_TIMEOUTS).as_secs_f64());
        } else if status != 0 && status != 200 {
            why = format!("HTTP {status} {why}");
        }
        let is_login = matches!(status, 401 | 403) || ["token", "/sso/cache/"].iter().any(|word| why.contains(word));
        let advice = if self.uses_sso && is_login && !is_passing { format!("; 'aws sso login --profile {}' logs in again", self.name) } else { String::new() };
        let why: String = why.chars().take(MESSAGE_LETTERS).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        (is_passing, why + &advice)
    }
}

/// An error without a source, whose text is what a user needs.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    is_passing: bool,
    message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl Error for Failure {}

impl From<Failure> for object_store::Error {
    fn from(failure: Failure) -> Self {
        match failure.is_passing {
            true => object_store::Error::Generic { store: "S3", source: Box::new(failure) },
            false => object_store::Error::Unauthenticated { path: String::new(), source: Box::new(failure) },
        }
    }
}

struct Kept {
    files: Files,
    looked: Instant,
    provider: ProfileFileCredentialsProvider,
    credential: Option<(Arc<AwsCredential>, Option<SystemTime>, Instant)>,
    failure: Option<(Failure, Instant)>,
}

impl Kept {
    /// Tools write new keys into the files; a file that cannot be read now changes nothing.
    fn look(&mut self, source: &Source) {
        if self.looked.elapsed() < REFRESH_PAUSE {
            return;
        }
        self.looked = Instant::now();
        let Ok(files) = Files::read(true) else { return };
        if files != self.files {
            self.provider = source.provider(&files);
            (self.files, self.credential, self.failure) = (files, None, None);
        }
    }

    /// The credential, if it is good for longer than `margin`.
    fn valid(&self, margin: Duration) -> Option<Arc<AwsCredential>> {
        let (credential, expiry, _) = self.credential.as_ref()?;
        expiry.is_none_or(|end| end > SystemTime::now() + margin).then(|| credential.clone())
    }
}

/// Credentials of a profile for the stores of one bucket.
pub struct ProfileCredentials {
    source: Source,
    kept: Mutex<Kept>,
}

impl fmt::Debug for ProfileCredentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ProfileCredentials({})", self.source.name)
    }
}

#[async_trait::async_trait]
impl CredentialProvider for ProfileCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let kept = &mut *self.kept.lock().await;
        kept.look(&self.source);
        let is_young = kept.credential.as_ref().is_some_and(|(_, _, since)| since.elapsed() < REFRESH_PAUSE);
        if let Some(credential) = kept.valid(if is_young { Duration::ZERO } else { REFRESH_BEFORE }) {
            return Ok(credential);
        }
        let failure = match kept.failure.take() {
            Some((failure, since)) if since.elapsed() < FAILURE_PAUSE => (failure, since),
            _ => match self.source.request(&kept.provider, &kept.files.names()).await {
                Ok(found) => {
                    let credential = Arc::new(AwsCredential {
                        key_id: found.access_key_id().to_string(),
                        secret_key: found.secret_access_key().to_string(),
                        token: found.session_token().map(str::to_string),
                    });
                    kept.credential = Some((credential.clone(), found.expiry(), Instant::now()));
                    return Ok(credential);
                }
                Err(failure) => (failure, Instant::now()),
            },
        };
        kept.failure = Some(failure.clone());
        // Those that expire soon are good until then.
        kept.valid(Duration::ZERO).ok_or(failure.0.into())
    }
}

/// Carries the crate's requests for credentials.
#[derive(Clone, Debug)]
struct Portal {
    client: reqwest::Client,
    status: Arc<AtomicU16>, // of the last answer; 0: no answer
}

impl HttpClient for Portal {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Portal {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let portal = self.clone();
        HttpConnectorFuture::new(async move { portal.send(request).await })
    }
}

/// Credentials travel by TLS, or stay on this machine or its host.
fn is_private(url: &Url) -> bool {
    url.scheme() == "https" || crate::store::is_loopback(url) || url.host_str().is_some_and(|host| METADATA_HOSTS.contains(&host))
}

impl Portal {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let url = Url::parse(request.uri()).map_err(|error| ConnectorError::user(error.into()))?;
        if !is_private(&url) {
            let address = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
            return Err(ConnectorError::user(format!("{address} has no TLS, and credentials would be sent through it; use https://").into()));
        }
        let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
        let (head, body) = request.into_parts();
        let body = body.bytes().map(<[u8]>::to_vec).unwrap_or_default();
        self.status.store(0, Ordering::Relaxed);
        let failed = |error: reqwest::Error| {
            let is_timeout = error.is_timeout();
            let error = error.without_url();
            let why = format!("{}: {}", url.host_str().unwrap_or_default(), innermost(&error)).into();
            if is_timeout { ConnectorError::timeout(why) } else { ConnectorError::io(why) }
        };
        let sent = self.client.request(head.method, url.clone()).headers(head.headers).body(body).send();
        let mut answer = crate::store::counted(sent).await.map_err(failed)?;
        let mut bytes = Vec::new();
        while let Some(next) = answer.chunk().await.map_err(failed)? {
            if (bytes.len() + next.len()) as u64 > MAX_BYTES {
                return Err(ConnectorError::user(format!("an answer larger than {MAX_BYTES} bytes").into()));
            }
            bytes.extend_from_slice(&next);
        }
        self.status.store(answer.status().as_u16(), Ordering::Relaxed);
        let status = answer.status().try_into().map_err(|_| ConnectorError::user("a status that is not one of HTTP".into()))?;
        let mut response = HttpResponse::new(status, SdkBody::from(bytes));
        for (name, value) in answer.headers() {
            if let Ok(value) = value.to_str() {
                response.headers_mut().insert(name.to_string(), value.to_string());
            }
        }
        Ok(response)
    }
}
