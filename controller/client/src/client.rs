//! Requests and their answers.

use std::time::Duration;

use http::{HeaderValue, Request, header};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::answer;
use crate::connection::{self, AnswerBody, ApiSendError, OneBody};
use crate::error::ClientError;
use crate::line_stream::LineStream;
use crate::request::ApiRequest;
use crate::retry::Retries;
use crate::server::Server;

/// Limits on answers.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// Maximum time for an answer, in addition to the time that a request lets the server wait.
    pub within: Duration,
    /// Maximum size of an answer in bytes.
    pub answer: usize,
    /// Maximum size of one line of a stream, or of one frame, in bytes.
    pub line: usize,
    /// Time without a line after which a stream counts as lost. The daemon writes to a quiet event stream every 15 s.
    /// Output that is followed may be quiet for longer, and is requested again.
    pub quiet: Duration,
    /// Total of the pauses between consecutive failed attempts after which the client gives up.
    pub without_connection: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            within: Duration::from_secs(30),
            answer: 16 << 20,
            line: 8 << 20,
            quiet: Duration::from_secs(60),
            without_connection: Duration::from_secs(120),
        }
    }
}

/// A client of one daemon.
#[derive(Debug, Clone)]
pub struct ApiClient {
    server: Server,
    limits: ClientLimits,
}

impl ApiClient {
    /// Makes a client. Nothing is sent yet.
    #[must_use]
    pub fn new(server: Server) -> Self {
        Self { server, limits: ClientLimits::default() }
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_limits(self, limits: ClientLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the limits.
    pub(crate) fn limits(&self) -> ClientLimits {
        self.limits
    }

    /// Returns the name of the server, for messages.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server.name
    }

    /// Sends a request, and returns its answer as a typed object.
    ///
    /// # Errors
    /// [`ClientError`], also for every status except 2xx.
    pub async fn send<T: DeserializeOwned>(&self, request: ApiRequest) -> Result<T, ClientError> {
        let name = request.name();
        let (_, body) = self.bytes(request).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Malformed(self.server.name.clone(), name, error))
    }

    /// Sends a `GET`, and repeats it while the daemon cannot be reached, restarts or is busy.
    ///
    /// # Errors
    /// Same as [`ApiClient::send`]; also the last error, if no attempt succeeds within `without_connection`.
    pub async fn send_again<T: DeserializeOwned>(&self, request: ApiRequest) -> Result<T, ClientError> {
        let mut retries = Retries::default();
        loop {
            match self.send(request.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => retries.wait(error, self.limits.without_connection).await?,
            }
        }
    }

    /// Sends a `GET`, and repeats it if its answer breaks off, also while the daemon restarts. Every other error of the
    /// first attempt is returned at once.
    ///
    /// # Errors
    /// Same as [`ApiClient::send_again`].
    pub async fn send_until_whole<T: DeserializeOwned>(&self, request: ApiRequest) -> Result<T, ClientError> {
        match self.send(request.clone()).await {
            Err(ClientError::Interrupted(..)) => self.send_again(request).await,
            answer => answer,
        }
    }

    /// Sends a request that may be answered without an object (204).
    ///
    /// # Errors
    /// Same as [`ApiClient::send`].
    pub async fn send_optional<T: DeserializeOwned>(&self, request: ApiRequest) -> Result<Option<T>, ClientError> {
        let name = request.name();
        let (status, body) = self.bytes(request).await?;
        if status == 204 {
            return Ok(None);
        }
        let read = serde_json::from_slice(&body).map(Some);
        read.map_err(|error| ClientError::Malformed(self.server.name.clone(), name, error))
    }

    /// Sends a request, and returns the status and the bytes of its answer.
    ///
    /// # Errors
    /// Same as [`ApiClient::send`].
    pub async fn bytes(&self, request: ApiRequest) -> Result<(u16, Vec<u8>), ClientError> {
        self.bytes_up_to(request, self.limits.answer).await
    }

    /// Sends a request, and repeats it while the daemon answers with status 429 (too many). A request with this answer
    /// has changed nothing.
    ///
    /// # Errors
    /// Same as [`ApiClient::send`]; also the last answer with status 429, if no attempt succeeds within
    /// `without_connection`.
    pub async fn bytes_in_turn(&self, request: ApiRequest) -> Result<(u16, Vec<u8>), ClientError> {
        let mut retries = Retries::default();
        loop {
            match self.bytes(request.clone()).await {
                Err(error) if error.failure().is_some_and(|failure| failure.status == 429) => {
                    retries.wait(error, self.limits.without_connection).await?;
                }
                answer => return answer,
            }
        }
    }

    /// Sends a request as [`ApiClient::bytes_in_turn`] does, and returns its answer as a typed object.
    ///
    /// # Errors
    /// Same as [`ApiClient::bytes_in_turn`].
    pub async fn send_in_turn<T: DeserializeOwned>(&self, request: ApiRequest) -> Result<T, ClientError> {
        let name = request.name();
        let (_, body) = self.bytes_in_turn(request).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Malformed(self.server.name.clone(), name, error))
    }

    /// Sends a request with another limit on the size of its answer.
    ///
    /// # Errors
    /// Same as [`ApiClient::send`].
    pub async fn bytes_up_to(&self, request: ApiRequest, most: usize) -> Result<(u16, Vec<u8>), ClientError> {
        let name = request.name();
        let within = self.limits.within + request.wait;
        let exchange = async {
            let (status, mut body) = self.begin(request).await?;
            let bytes = self.read(&name, &mut body, most).await?;
            if (200..=299).contains(&status) {
                Ok((status, bytes))
            } else {
                Err(self.refused(name.clone(), status, &bytes))
            }
        };
        let late = |_| ClientError::Late(self.server.name.clone(), name.clone(), within);
        timeout(within, exchange).await.map_err(late)?
    }

    /// Sends a request, and returns the lines of its answer. The head must come in time; the lines may take any time.
    ///
    /// # Errors
    /// Same as [`ApiClient::send`].
    pub async fn open(&self, request: ApiRequest) -> Result<LineStream, ClientError> {
        let name = request.name();
        let within = self.limits.within + request.wait;
        let head = async {
            let (status, mut body) = self.begin(request).await?;
            if (200..=299).contains(&status) {
                return Ok(body);
            }
            let bytes = self.read(&name, &mut body, self.limits.answer).await?;
            Err(self.refused(name.clone(), status, &bytes))
        };
        let late = |_| ClientError::Late(self.server.name.clone(), name.clone(), within);
        let body = timeout(within, head).await.map_err(late)??;
        Ok(LineStream::new(body, self.limits.line, self.server.name.clone(), name))
    }

    async fn begin(&self, request: ApiRequest) -> Result<(u16, AnswerBody), ClientError> {
        let (server, name) = (self.server.name.clone(), request.name());
        match connection::send(&self.server, self.http(request)).await {
            Ok(answer) => Ok(answer),
            Err(ApiSendError::BeforeSending(error)) => Err(ClientError::Unreachable(server, error)),
            Err(ApiSendError::Interrupted(error)) => Err(ClientError::Interrupted(server, name, error)),
        }
    }

    async fn read(&self, name: &str, body: &mut AnswerBody, most: usize) -> Result<Vec<u8>, ClientError> {
        let server = || self.server.name.clone();
        let broken = |error| ClientError::Interrupted(server(), name.to_owned(), error);
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await.map_err(broken)? {
            if bytes.len() + piece.len() > most {
                return Err(ClientError::TooLong(server(), name.to_owned(), most));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    fn refused(&self, name: String, status: u16, body: &[u8]) -> ClientError {
        match answer::failure(status, body) {
            Some(failure) => ClientError::Api(failure),
            None => ClientError::Status(self.server.name.clone(), name, status),
        }
    }

    fn http(&self, request: ApiRequest) -> Request<OneBody> {
        let ApiRequest { method, target, body, headers, .. } = request;
        let uri = self.server.address.try_target(&target).expect("its parts are percent-encoded");
        let mut request = Request::new(OneBody::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let all = request.headers_mut();
        all.extend(headers);
        let host = HeaderValue::from_str(&self.server.address.authority).expect("an authority is visible ASCII");
        all.insert(header::HOST, host);
        all.insert(header::CONNECTION, HeaderValue::from_static("close"));
        all.extend(self.server.token.as_ref().map(|token| (header::AUTHORIZATION, token.bearer())));
        request
    }
}
