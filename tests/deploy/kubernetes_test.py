#!/usr/bin/env python3
"""Renders each overlay of deploy/kubernetes by `kubectl kustomize` and checks it.

With --schemas it also checks every object against the schemas of the API, by the package kubernetes-validate.
"""

import copy
import os
import shutil
import subprocess
import sys
import tempfile

import yaml

OVERLAYS = ("cpu", "gpu", "dev", "checkpoints", "metrics")
# Secrets that a command in the overlay's kustomization.yaml makes.
MADE_BY_HAND = {"kaon-metrics"}
WORKLOADS = ("StatefulSet", "Job")


def render(folder):
    out = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    if out.returncode:
        sys.exit(f"kubectl kustomize {folder} failed: {out.stderr}")
    return [document for document in yaml.safe_load_all(out.stdout) if document]


def selects(selector, labels):
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", selector).items())


def pods_of(objects):
    return [(o, o["spec"]["template"]) for o in objects if o["kind"] in WORKLOADS]


def pod_faults(owner, pod, secrets, shared):
    name, spec = owner["metadata"]["name"], pod["spec"]
    claims = {c["metadata"]["name"] for c in owner["spec"].get("volumeClaimTemplates", [])}
    volumes = {v["name"] for v in spec.get("volumes", [])} | claims
    security = spec.get("securityContext", {})
    if not (security.get("runAsNonRoot") and security.get("runAsUser") == security.get("fsGroup") == 65532):
        yield f"{name} may run as root or as another user than the image's"
    if security.get("fsGroupChangePolicy") != "OnRootMismatch" and claims:
        yield f"{name}: the data folder is opened to the group at each start"
    for volume in spec.get("volumes", []):
        secret = volume.get("secret", {})
        if secret and secret["secretName"] not in secrets:
            yield f"{name} mounts Secret {secret['secretName']}, which nothing makes"
        if secret and secret.get("defaultMode") != 0o440:
            yield f"{name}: keys in {volume['name']} do not have mode 0440"
        if "configMap" in volume or "hostPath" in volume:
            yield f"{name}: volume {volume['name']} is neither a Secret nor a claim"
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim and claim not in shared:
            yield f"{name} mounts claim {claim}, which nothing makes for all pods"
    for container in spec["containers"]:
        inner = container.get("securityContext", {})
        if (inner.get("privileged") or inner.get("allowPrivilegeEscalation") is not False
                or not inner.get("readOnlyRootFilesystem") or inner.get("capabilities", {}).get("drop") != ["ALL"]):
            yield f"{name}: container {container['name']} has more rights than it needs"
        if container["image"] == "kaon":
            yield f"{name}: container {container['name']} has no image"
        if not container.get("resources", {}).get("limits", {}).get("memory"):
            yield f"{name}: container {container['name']} has no memory limit"
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{name} mounts {mount['name']}, which is no volume"
        if owner["kind"] != "StatefulSet":
            continue
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe not in container:
                yield f"{name} has no {probe}"
        if container.get("readinessProbe", {}).get("exec", {}).get("command", [""])[0] != "kaonctl":
            yield f"{name} is not ready by kaonctl"
        if "exec" in container.get("livenessProbe", {}):
            yield f"{name}: liveness must not ask for health, which peers and full disks change"


def reference_faults(objects):
    """Selectors match pods; ports are those of the pods; each StatefulSet has its service and budget."""
    pods = pods_of(objects)
    for o in objects:
        name, kind, spec = o["metadata"]["name"], o["kind"], o.get("spec", {})
        if kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            selector = spec.get("podSelector", spec.get("selector"))
            matched = [pod for _, pod in pods if selects(selector, pod["metadata"]["labels"])]
            if len(matched) != 1:
                yield f"{kind} {name} selects {len(matched)} workloads, must be 1"
                continue
            ports = {p["containerPort"]: p["name"] for c in matched[0]["spec"]["containers"] for p in c["ports"]}
        if kind == "Service":
            if not spec.get("publishNotReadyAddresses") or spec.get("clusterIP") != "None":
                yield f"Service {name} hides pods that are not ready"
            for port in spec["ports"]:
                if ports.get(port["port"]) != port["targetPort"]:
                    yield f"Service {name} has port {port['port']}, the pod has {sorted(ports)}"
        if kind == "NetworkPolicy":
            for port in (p for rule in spec["ingress"] for p in rule["ports"]):
                if port["port"] not in ports:
                    yield f"NetworkPolicy {name} lets port {port['port']} in, the pod has {sorted(ports)}"
        if kind == "StatefulSet":
            if not selects(spec["selector"], spec["template"]["metadata"]["labels"]):
                yield f"StatefulSet {name} does not select its own pods"
            for other in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
                if not any(x["kind"] == other and x["metadata"]["name"] == spec["serviceName"] for x in objects):
                    yield f"StatefulSet {name} has no {other} {spec['serviceName']}"
            seconds = spec["template"]["spec"].get("terminationGracePeriodSeconds", 0)
            if seconds < 30:
                yield f"StatefulSet {name} gives {seconds} s to end, must be at least 30"


def name_faults(objects):
    """Every host that a program dials is a pod, and the pod's certificate names it."""
    sets = {o["metadata"]["name"]: o for o in objects if o["kind"] == "StatefulSet"}
    hosts = {f"{n}-{i}.{o['spec']['serviceName']}": n for n, o in sets.items() for i in range(o["spec"]["replicas"])}
    named = {o["metadata"]["name"]: o["spec"] for o in objects if o["kind"] == "Certificate"}
    for host, name in hosts.items():
        if host not in named[name].get("dnsNames", []):
            yield f"certificate {name} does not name {host}"
    for name in sets:
        if "127.0.0.1" not in named[name].get("ipAddresses", []):
            yield f"certificate {name} does not name 127.0.0.1, which the probes dial"
    for owner, pod in pods_of(objects):
        for entry in (e for c in pod["spec"]["containers"] for e in c["env"]):
            if entry["name"] not in ("KAON_SHARDS", "KAON_ENDPOINTS"):
                continue
            dialled = [address.rsplit(":", 1)[0] for address in entry["value"].split(",")]
            peer = "kaon-shard" if entry["name"] == "KAON_SHARDS" else "kaon-coordinator"
            if dialled != [host for host, name in hosts.items() if name == peer]:
                yield f"{owner['metadata']['name']}: {entry['name']} is {entry['value']}, the pods are {sorted(hosts)}"


def metrics_faults(objects):
    """A server with metrics has a token, a port named metrics, and a policy that admits Prometheus there and nobody else."""
    for owner, pod in pods_of(objects):
        name, container = owner["metadata"]["name"], pod["spec"]["containers"][0]
        env = {e["name"]: e.get("value", "") for e in container["env"]}
        ports = {p["name"]: p["containerPort"] for p in container.get("ports", [])}
        if ("KAON_METRICS_ADDRESS" in env) != ("metrics" in ports):
            yield f"{name} has metrics without a port of that name, or the port without metrics"
        if "metrics" not in ports:
            continue
        if env["KAON_METRICS_ADDRESS"] != f"0.0.0.0:{ports['metrics']}":
            yield f"{name} serves metrics at {env['KAON_METRICS_ADDRESS']}, its port is {ports['metrics']}"
        folders = [m["mountPath"] for m in container["volumeMounts"]]
        if os.path.dirname(env.get("KAON_METRICS_TOKEN_FILE", "")) not in folders:
            yield f"{name} mounts no token of its metrics"
        admitted = [peer for o in objects if o["kind"] == "NetworkPolicy"
                    and selects(o["spec"]["podSelector"], pod["metadata"]["labels"])
                    for rule in o["spec"]["ingress"] for port in rule["ports"] if port["port"] == ports["metrics"]
                    for peer in rule["from"]]
        if [p.get("podSelector", {}).get("matchLabels") for p in admitted] != [{"app.kubernetes.io/name": "prometheus"}]:
            yield f"{name}: metrics are open to {admitted}"


def scrape_faults(objects, configuration):
    """The scrape configuration finds the Services' ports of metrics, by TLS and with a token."""
    jobs = {job["job_name"]: job for job in configuration["scrape_configs"]}
    for service in (o for o in objects if o["kind"] == "Service"):
        name, space = service["metadata"]["name"], service["metadata"]["namespace"]
        if not any(port["name"] == "metrics" for port in service["spec"]["ports"]):
            yield f"Service {name} has no port named metrics"
        job = jobs.get(name, {})
        looked_up = [one for found in job.get("dns_sd_configs", []) for one in found["names"]]
        if looked_up != [f"_metrics._tcp.{name}.{space}.svc.cluster.local"]:
            yield f"prometheus.yml: job {name} looks up {looked_up}"
            continue
        if job["scheme"] != "https" or "credentials_file" not in job["authorization"]:
            yield f"prometheus.yml: {name} is scraped without TLS or token"
        named = find(objects, "Certificate", name)["spec"].get("ipAddresses", [])
        if job["tls_config"]["server_name"] not in named:
            yield f"certificate {name} does not name {job['tls_config']['server_name']}, which prometheus.yml expects"


def faults_of(objects):
    secrets = {o["spec"]["secretName"] for o in objects if o["kind"] == "Certificate"} | MADE_BY_HAND
    shared = {o["metadata"]["name"] for o in objects
              if o["kind"] == "PersistentVolumeClaim" and o["spec"]["accessModes"] == ["ReadWriteMany"]}
    found = [fault for owner, pod in pods_of(objects) for fault in pod_faults(owner, pod, secrets, shared)]
    return found + list(reference_faults(objects)) + list(name_faults(objects)) + list(metrics_faults(objects))


def find(objects, kind, name):
    return next(o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)


def seeded_faults(objects):
    """Yields changes that faults_of must find, each with a word of the fault."""
    shard = ("StatefulSet", "kaon-shard")
    changes = (
        (shard, lambda o: o["spec"]["template"]["metadata"]["labels"].update({"app.kubernetes.io/component": "x"}), "selects 0"),
        (shard, lambda o: o["spec"]["template"]["spec"]["containers"][0].pop("startupProbe"), "startupProbe"),
        (shard, lambda o: o["spec"]["template"]["spec"]["volumes"][-1]["secret"].update(secretName="x"), "Secret x"),
        (shard, lambda o: o["spec"]["template"]["spec"]["containers"][0]["securityContext"].update(privileged=True), "rights"),
        (shard, lambda o: o["spec"].update(replicas=4), "does not name kaon-shard-3"),
        (("Service", "kaon-shard"), lambda o: o["spec"]["ports"][0].update(port=7702), "port 7702"),
        (("NetworkPolicy", "kaon-coordinator"), lambda o: o["spec"]["ingress"][0]["ports"][0].update(port=1), "lets port 1 in"),
        (("Certificate", "kaon-coordinator"), lambda o: o["spec"].update(dnsNames=[]), "does not name kaon-coordinator-0"),
    )
    if any(o["kind"] == "Job" for o in objects):
        dialled = "kaon-coordinator-9.kaon-coordinator:7700"
        changes += ((("Job", "kaon-train"), lambda o: [e.update(value=dialled) for e in o["spec"]["template"]["spec"]
                    ["containers"][0]["env"] if e["name"] == "KAON_ENDPOINTS"], dialled),)
    if any(o["metadata"]["name"] == "kaon-shard-metrics" for o in objects):
        policy = ("NetworkPolicy", "kaon-shard-metrics")
        changes += (
            (policy, lambda o: o["spec"]["ingress"][0]["from"].append({"podSelector": {}}), "metrics are open to"),
            (policy, lambda o: o["spec"].update(ingress=[]), "metrics are open to []"),
            (shard, lambda o: [e.update(value="/nowhere/token") for e in o["spec"]["template"]["spec"]["containers"][0]["env"]
                               if e["name"] == "KAON_METRICS_TOKEN_FILE"], "mounts no token"),
        )
    if any(o["kind"] == "PersistentVolumeClaim" for o in objects):
        claim = ("PersistentVolumeClaim", "kaon-checkpoints")
        changes += ((claim, lambda o: o["spec"].update(accessModes=["ReadWriteOnce"]), "claim kaon-checkpoints"),)
    for target, change, word in changes:
        changed = copy.deepcopy(objects)
        change(find(changed, *target))
        yield changed, word


def schema_faults(objects):
    try:
        import kubernetes_validate
    except ImportError:
        sys.exit("python3 does not find kubernetes-validate: pip install --target DIR it, and set PYTHONPATH=DIR")
    for o in objects:
        if "cert-manager.io" in o["apiVersion"]:
            continue
        try:
            kubernetes_validate.validate(o, "1.29", strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{o['kind']} {o['metadata']['name']}: {error}"


def main():
    if shutil.which("kubectl") is None:
        sys.exit("kubectl is missing: deploy/install_packages.sh --test installs kubernetes-client")
    source = os.path.join(os.environ["TEST_SRCDIR"], "kaon/deploy/kubernetes")
    # kustomize takes no links that lead out of a folder.
    copied = os.path.join(tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"]), "kubernetes")
    shutil.copytree(source, copied)
    failures = []
    for overlay in OVERLAYS:
        objects = render(os.path.join(copied, "overlays", overlay))
        found = faults_of(objects) + (list(schema_faults(objects)) if "--schemas" in sys.argv else [])
        failures += [f"{overlay}: {fault}" for fault in found]
        for changed, word in seeded_faults(objects):
            if not any(word in fault for fault in faults_of(changed)):
                failures.append(f"{overlay}: a fault is not found: {word}")
        print(f"{overlay}: {len(objects)} objects")
    folder = os.path.join(copied, "overlays", "metrics")
    with open(os.path.join(folder, "prometheus.yml"), encoding="ascii") as file:
        configuration = yaml.safe_load(file)
    failures += scrape_faults(render(folder), configuration)
    with open(os.path.join(folder, "kustomization.yaml"), encoding="ascii") as file:
        text = file.read()
    failures += [f"metrics: no command makes Secret {one}" for one in MADE_BY_HAND if f"create secret generic {one} " not in text]
    sys.exit("\n".join(failures) if failures else 0)


main()
