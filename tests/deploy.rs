//! What `deploy/` and `docker-compose.yml` say, against each other and against the program: no cluster, no broker.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use turnmill::config;

/// What may come after a drain: 10 s for the last records of each of two producers, 5 s for the last commit, 5 s to
/// leave the group.
const AFTER_DRAIN: Duration = Duration::from_secs(30);

const OVERLAYS: [&str; 2] = ["dev", "production"];

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A worker's pod as a kustomization makes it, and the folder of its settings.
struct Pod {
    folder: String,
    spec: Value,
}

/// The base, and each overlay over it.
fn pods() -> Vec<Pod> {
    let base = yaml("deploy/kubernetes/base/deployment.yaml");
    let pod = |folder: String, deployment: &Value| Pod {
        folder,
        spec: deployment["spec"]["template"]["spec"].clone(),
    };
    let mut pods = vec![pod("deploy/kubernetes/base".into(), &base)];
    for overlay in OVERLAYS {
        let folder = format!("deploy/kubernetes/overlays/{overlay}");
        let mut deployment = base.clone();
        patch(&mut deployment, yaml(&format!("{folder}/deployment.yaml")));
        pods.push(pod(folder, &deployment));
    }
    pods
}

/// A strategic merge, as far as the overlays need it: tables by key, lists by the name of their elements.
fn patch(value: &mut Value, with: Value) {
    match (value, with) {
        (Value::Object(value), Value::Object(with)) => {
            for (key, with) in with {
                patch(value.entry(key).or_insert(Value::Null), with);
            }
        }
        (Value::Array(value), Value::Array(with)) if with.iter().all(|item| item["name"].is_string()) => {
            for with in with {
                match value.iter_mut().find(|item| item["name"] == with["name"]) {
                    Some(item) => patch(item, with),
                    None => value.push(with),
                }
            }
        }
        (value, with) => *value = with,
    }
}

impl Pod {
    fn worker(&self) -> &Value {
        self.containers().find(|container| container["args"][0] == "worker").unwrap()
    }

    fn containers(&self) -> impl Iterator<Item = &Value> {
        let lists = ["initContainers", "containers"].map(|list| self.spec[list].as_array());
        lists.into_iter().flatten().flatten()
    }

    /// The number of a port that a probe or a monitor gives by name.
    fn port(&self, name: &Value) -> u64 {
        let ports = self.worker()["ports"].as_array().unwrap();
        let port = ports.iter().find(|port| port["name"] == *name);
        port.unwrap_or_else(|| panic!("{}: no port {name}", self.folder))["containerPort"].as_u64().unwrap()
    }

    fn settings(&self) -> String {
        format!("{}/turnmill.toml", self.folder)
    }

    fn config(&self) -> config::Config {
        let settings = at(&self.settings());
        config::load(Some(&settings), variables(self.worker()).into_iter()).unwrap().config
    }
}

/// The variables of a container; what comes from a secret is some text.
fn variables(container: &Value) -> Vec<(String, String)> {
    let variables = container["env"].as_array().unwrap().iter();
    let variable = |v: &Value| {
        (v["name"].as_str().unwrap().to_owned(), v["value"].as_str().unwrap_or("from a secret").to_owned())
    };
    variables.map(variable).collect()
}

/// Every value under this key, however deep.
fn under<'a>(key: &str, value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(table) => {
            found.extend(table.get(key));
            table.values().for_each(|value| under(key, value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| under(key, value, found)),
        _ => {}
    }
}

#[test]
fn a_worker_is_given_time_to_drain() {
    let pods = pods();
    for pod in &pods {
        let grace = Duration::from_secs(pod.spec["terminationGracePeriodSeconds"].as_u64().unwrap());
        let drain = pod.config().worker.drain_timeout;
        assert!(grace >= drain + AFTER_DRAIN, "{}: {grace:?} for a drain of {drain:?}", pod.folder);
    }

    let worker = &yaml("docker-compose.yml")["services"]["worker"];
    let grace = humantime::parse_duration(worker["stop_grace_period"].as_str().unwrap()).unwrap();
    // The binary is asked about these settings where the overlay's are.
    let mount = worker["volumes"][0].as_str().unwrap();
    let pod = pods.iter().find(|pod| mount == format!("./{}:/etc/turnmill:ro", pod.folder)).unwrap();
    let drain = pod.config().worker.drain_timeout;
    assert!(grace >= drain + AFTER_DRAIN, "docker-compose.yml: {grace:?} for a drain of {drain:?}");
}

#[test]
fn whoever_asks_a_worker_asks_at_its_admin_port() {
    let monitor = yaml("deploy/kubernetes/base/podmonitor.yaml")["spec"]["podMetricsEndpoints"][0].clone();
    let policy = yaml("deploy/kubernetes/base/networkpolicy.yaml")["spec"]["ingress"][0]["ports"][0].clone();
    assert_eq!(monitor["path"], "/metrics");
    let mut listen = BTreeSet::new();
    for pod in pods() {
        let admin = pod.config().admin.listen;
        assert!(admin.ip().is_unspecified(), "{}: {admin} is not reached from outside", pod.folder);
        for (probe, path) in
            [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")]
        {
            let get = &pod.worker()[probe]["httpGet"];
            assert_eq!(
                (&get["path"], pod.port(&get["port"])),
                (&path.into(), admin.port().into()),
                "{probe}"
            );
        }
        assert_eq!(pod.port(&monitor["port"]), u64::from(admin.port()));
        assert_eq!(pod.port(&policy["port"]), u64::from(admin.port()));
        listen.insert(admin);
    }

    // The image and the local stack, which has no setting of its own.
    let dockerfile = text("deploy/Dockerfile");
    let line = |start: &str| dockerfile.lines().find_map(|line| line.strip_prefix(start)).unwrap();
    let image: SocketAddr = line("ENV TURNMILL__ADMIN__LISTEN=").parse().unwrap();
    let scraped = &yaml("deploy/prometheus/prometheus.yml")["scrape_configs"][0]["dns_sd_configs"][0]["port"];
    assert_eq!(line("EXPOSE "), image.port().to_string());
    assert_eq!(*scraped, image.port());
    assert_eq!(listen, BTreeSet::from([image]));
}

#[test]
fn the_program_takes_the_settings() {
    for pod in pods() {
        let checked = Command::new(env!("CARGO_BIN_EXE_turnmill"))
            .args(["check", "--offline", "--config"])
            .arg(at(&pod.settings()))
            .env_clear()
            .envs(variables(pod.worker()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&checked.stdout);
        assert!(
            checked.status.success(),
            "{}: {said}{}",
            pod.folder,
            String::from_utf8_lossy(&checked.stderr)
        );
    }
}

#[test]
fn the_settings_are_where_the_worker_reads_them() {
    for pod in pods() {
        let map = &yaml(&format!("{}/kustomization.yaml", pod.folder))["configMapGenerator"][0];
        let packed: BTreeSet<_> =
            map["files"].as_array().unwrap().iter().map(|f| f.as_str().unwrap().to_owned()).collect();
        let folder = std::fs::read_dir(at(&pod.folder)).unwrap();
        let names = folder.map(|file| file.unwrap().file_name().into_string().unwrap());
        let settings: BTreeSet<_> = names.filter(|name| !name.ends_with(".yaml")).collect();
        assert_eq!(packed, settings, "{}: the files of the ConfigMap, and those of the folder", pod.folder);

        let volumes = pod.spec["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["configMap"]["name"] == map["name"]).unwrap();
        for container in pod.containers() {
            let mounts = container["volumeMounts"].as_array().unwrap();
            let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).unwrap();
            let read = variables(container).into_iter().find(|(name, _)| name == "TURNMILL_CONFIG");
            assert_eq!(read.unwrap().1, format!("{}/turnmill.toml", mount["mountPath"].as_str().unwrap()));
        }
    }
}

#[test]
fn nothing_is_root_and_nothing_is_written() {
    for Pod { folder, spec } in &pods() {
        let all = &spec["securityContext"];
        assert_eq!(all["runAsNonRoot"], true, "{folder}");
        assert_eq!(all["runAsUser"], 65532, "{folder}");
        assert_eq!(all["seccompProfile"]["type"], "RuntimeDefault", "{folder}");
        assert_eq!(spec["automountServiceAccountToken"], false, "{folder}");
    }
    for pod in pods() {
        for container in pod.containers() {
            let (own, name) = (&container["securityContext"], &container["name"]);
            assert_eq!(own["readOnlyRootFilesystem"], true, "{}: {name}", pod.folder);
            assert_eq!(own["allowPrivilegeEscalation"], false, "{}: {name}", pod.folder);
            assert_eq!(own["capabilities"]["drop"], serde_json::json!(["ALL"]), "{}: {name}", pod.folder);
            assert!(own["runAsUser"].is_null() && own["privileged"].is_null(), "{}: {name}", pod.folder);
        }
    }
    let dockerfile = text("deploy/Dockerfile");
    let user = dockerfile.lines().filter_map(|line| line.strip_prefix("USER ")).next_back();
    assert_eq!(user, Some("65532:65532"));
}

#[test]
fn images_have_a_version_and_ours_is_this_one() {
    let mut images = Vec::new();
    let dockerfile = text("deploy/Dockerfile");
    let from = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM "));
    images.extend(from.filter_map(|line| line.split(' ').next()).map(str::to_owned));
    let compose = yaml("docker-compose.yml");
    let mut found = Vec::new();
    let specs: Vec<_> = pods().into_iter().map(|pod| pod.spec).collect();
    specs.iter().chain([&compose]).for_each(|value| under("image", value, &mut found));
    images.extend(found.into_iter().map(|image| image.as_str().unwrap().to_owned()));
    for overlay in OVERLAYS {
        let image = &yaml(&format!("deploy/kubernetes/overlays/{overlay}/kustomization.yaml"))["images"][0];
        images.push(format!("{}:{}", image["name"].as_str().unwrap(), image["newTag"].as_str().unwrap()));
    }

    for image in images {
        let (name, tag) = image.rsplit_once(':').unwrap_or_else(|| panic!("{image} has no tag"));
        assert!(!tag.is_empty() && !tag.starts_with("latest") && !tag.contains('/'), "{image} is not pinned");
        assert!(name != "turnmill" || tag == env!("CARGO_PKG_VERSION"), "{image} is another version");
    }
}

#[test]
fn the_images_health_check_asks_the_worker() {
    let check = |answer: Option<&'static str>| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = format!("0.0.0.0:{}", server.local_addr().unwrap().port());
        let asked = answer.map(|answer| {
            std::thread::spawn(move || {
                let (mut asker, _) = server.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    asker.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                asker.write_all(answer.as_bytes()).unwrap();
                String::from_utf8(request).unwrap()
            })
        });
        // Without an answer nobody listens: the server is gone.
        let (program, args) = health_check();
        let mut command = Command::new(program);
        command.args(args).env("TURNMILL__ADMIN__LISTEN", listen).stderr(Stdio::null());
        (command.status().unwrap().success(), asked.map(|asked| asked.join().unwrap()))
    };

    let (well, request) = check(Some("HTTP/1.1 200 OK\r\n\r\n"));
    assert!(well && request.unwrap().starts_with("GET /livez HTTP/1."));
    assert!(!check(Some("HTTP/1.1 503 Service Unavailable\r\n\r\n")).0);
    assert!(!check(None).0);
}

/// The program of the image's `HEALTHCHECK`, and its arguments.
fn health_check() -> (String, Vec<String>) {
    let dockerfile = text("deploy/Dockerfile").replace("\\\n", "");
    let line = dockerfile.lines().find(|line| line.starts_with("HEALTHCHECK ")).unwrap();
    let (_, command) = line.split_once(" CMD ").unwrap();
    let mut words: Vec<String> = serde_json::from_str(command).unwrap();
    (words.remove(0), words)
}
