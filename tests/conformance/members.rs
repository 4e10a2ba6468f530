//! Each documented member of the APIs works through the sidecar as with LiteLLM alone. A table lists the exceptions
//! with their reasons (`tests/python/members.py`).

use sluice_testkit::Sidecar;
use sluice_testkit::litellm::LiteLlm;
use sluice_testkit::sdk::PortToSocket;

#[tokio::test]
async fn each_documented_member_does_what_it_does_without_sluice() {
    let litellm = LiteLlm::shared().await;
    let sidecar = Sidecar::to_url(litellm.url()).key(litellm.key()).start().await;
    let socat = PortToSocket::to(sidecar.socket()).await;

    let through = format!("http://127.0.0.1:{}", socat.port());
    let ran = litellm.compare("members.py", &through).await;

    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(said.ends_with(" members passed\n"), "{said}");
    assert_eq!(sidecar.stop().await, 0);
    assert_eq!(sidecar.audit().open_calls(), Vec::<String>::new());
}
