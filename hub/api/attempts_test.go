package api_test

import "strings"

// attempt is one thing that a tenant or an outsider tries. An answer that begins with 2 may come, if nothing of blue is
// in it.
type attempt struct {
	secret, method, path, body string
	status                     int
}

// attempts are numbered by their place, from 1: docs/security.md names them.
var attempts = []attempt{
	// 1 to 18: read another namespace's objects by their ids.
	{"red", "GET", "/v1/allocation/ALLOC", "", 404},
	{"red", "GET", "/v1/allocation/ALLOC?namespace=red", "", 404},
	{"red", "GET", "/v1/allocation/ALLOC/history", "", 404},
	{"red", "GET", "/v1/allocation/ALLOC/services", "", 404},
	{"red", "GET", "/v1/evaluation/EVAL", "", 404},
	{"red", "GET", "/v1/evaluation/EVAL?related=true", "", 404},
	{"red", "GET", "/v1/evaluation/EVAL/allocations", "", 200},
	{"red", "GET", "/v1/deployment/DEPLOY", "", 404},
	{"red", "GET", "/v1/deployment/progress/DEPLOY", "", 404},
	{"red", "GET", "/v1/deployment/allocations/DEPLOY", "", 200},
	{"red", "GET", "/v1/job/JOB", "", 403},
	{"red", "GET", "/v1/job/JOB?namespace=blue", "", 403},
	{"red", "GET", "/v1/job/JOB?namespace=red", "", 404},
	{"red", "GET", "/v1/job/JOB?namespace=*", "", 404},
	{"red", "GET", "/v1/job/JOB/versions?namespace=blue&diffs=true", "", 403},
	{"red", "GET", "/v1/job/JOB/submission?namespace=blue", "", 403},
	{"red", "GET", "/v1/volume/host/VOLUME?namespace=*", "", 404},
	{"red", "GET", "/v1/volume/host/VOLUME?namespace=blue", "", 403},
	// 19 to 30: files, logs, commands and signals of another namespace's tasks.
	{"red", "GET", "/v1/client/fs/ls/ALLOC?path=/", "", 404},
	{"red", "GET", "/v1/client/fs/stat/ALLOC?path=/", "", 404},
	{"red", "GET", "/v1/client/fs/cat/ALLOC?path=secrets/x&namespace=red", "", 404},
	{"red", "GET", "/v1/client/fs/readat/ALLOC?path=x", "", 404},
	{"red", "GET", "/v1/client/fs/stream/ALLOC?path=x&origin=end", "", 404},
	{"red", "GET", "/v1/client/fs/logs/ALLOC?task=main&follow=true", "", 404},
	{"red", "GET", "/v1/client/allocation/ALLOC/stats", "", 404},
	{"red", "GET", "/v1/client/allocation/ALLOC/checks", "", 404},
	{"red", "PUT", "/v1/client/allocation/ALLOC/restart", "{}", 404},
	{"red", "PUT", "/v1/client/allocation/ALLOC/signal", `{"Signal": "SIGKILL"}`, 404},
	{"red", "GET", "/v1/client/allocation/ALLOC/gc", "", 404},
	{"red", "PUT", "/v1/allocation/ALLOC/stop", "", 404},
	// 31 to 40: change another namespace's jobs and deployments.
	{"red", "PUT", "/v1/deployment/promote/DEPLOY", `{"All": true}`, 404},
	{"red", "PUT", "/v1/deployment/pause/DEPLOY", `{"Pause": true}`, 404},
	{"red", "PUT", "/v1/deployment/fail/DEPLOY", "", 404},
	{"red", "DELETE", "/v1/job/JOB?namespace=blue&purge=true", "", 403},
	{"red", "PUT", "/v1/job/JOB/scale?namespace=blue", `{"Target": {"Group": "site"}, "Count": 0}`, 403},
	{"red", "PUT", "/v1/job/JOB/revert?namespace=blue", `{"JobID": "JOB", "JobVersion": 0}`, 403},
	{"red", "PUT", "/v1/job/JOB/versions/mine/tag?namespace=blue", `{"Version": 0}`, 403},
	{"red", "PUT", "/v1/job/JOB/dispatch?namespace=blue", `{"Payload": "eA=="}`, 403},
	{"red", "PUT", "/v1/job/JOB/prefetch?namespace=blue", "{}", 403},
	{"red", "DELETE", "/v1/volume/host/VOLUME?namespace=*", "", 500}, // no volume of the namespace "*": frozen
	// 41 to 50: job files that name what is another's.
	{"red", "PUT", "/v1/jobs", jobText("blue", "JOB", "default", ""), 403},
	{"red", "PUT", "/v1/jobs?namespace=blue", jobText("red", "JOB", "default", ""), 403},
	{"red", "PUT", "/v1/jobs?namespace=default", jobText("blue", "x", "default", ""), 403},
	{"red", "PUT", "/v1/job/x/plan?namespace=red", `{"Diff": true, ` + strings.TrimPrefix(jobText("blue", "x", "default", ""), "{"), 200}, // a plan for red
	{"red", "PUT", "/v1/job/JOB/plan", `{"Diff": true, ` + strings.TrimPrefix(jobText("blue", "JOB", "default", ""), "{"), 403},
	{"red", "PUT", "/v1/validate/job", jobText("blue", "x", "default", ""), 403},
	{"red", "PUT", "/v1/jobs", jobText("red", "x", "reserved", ""), 403},
	{"red", "PUT", "/v1/jobs", jobText("red", "x", "all", ""), 403},
	{"red", "PUT", "/v1/jobs", jobText("red", "x", "default", `, "Volumes": {"v": {"Type": "host", "Source": "blue-data"}}`), 403},
	{"red", "PUT", "/v1/job/redjob/revert?namespace=red", `{"JobID": "redjob", "JobVersion": 0}`, 403}, // to a version with another's volume
	// 51 to 66: lists, searches and streams.
	{"red", "GET", "/v1/jobs?namespace=*", "", 200},
	{"red", "GET", "/v1/jobs?namespace=*&prefix=blue", "", 200},
	{"red", "GET", `/v1/jobs?namespace=*&filter=Namespace+==+"blue"`, "", 200},
	{"red", "GET", "/v1/allocations?namespace=*", "", 200},
	{"red", "GET", "/v1/evaluations?namespace=*", "", 200},
	{"red", "GET", "/v1/deployments?namespace=*", "", 200},
	{"red", "GET", "/v1/services?namespace=*", "", 200},
	{"red", "GET", "/v1/service/JOB?namespace=*", "", 200},
	{"red", "GET", "/v1/namespaces", "", 200},
	{"red", "PUT", "/v1/jobs/statuses?namespace=*", `{"Jobs": [{"ID": "JOB", "Namespace": "blue"}]}`, 200},
	{"red", "PUT", "/v1/search?namespace=*", `{"Prefix": "", "Context": "all"}`, 200},
	{"red", "PUT", "/v1/search?namespace=blue", `{"Prefix": "blue", "Context": "jobs"}`, 200},
	{"red", "PUT", "/v1/search/fuzzy?namespace=*", `{"Text": "bluesecret", "Context": "all"}`, 200},
	{"red", "GET", "/v1/scaling/policies?namespace=*", "", 200},
	{"red", "GET", "/v1/volumes?namespace=*&type=host", "", 200},
	{"red", "GET", "/v1/event/stream?namespace=*&index=ENTRY", "", 200},
	// 67 to 80: tokens with few capabilities, and outsiders.
	{"lister", "GET", "/v1/job/redjob?namespace=red", "", 403},
	{"reader", "PUT", "/v1/jobs", jobText("red", "x", "default", ""), 403},
	{"logs", "GET", "/v1/client/fs/cat/ALLOC", "", 404},
	{"glob", "GET", "/v1/job/JOB?namespace=r%00blue", "", 404},
	{"nodes", "GET", "/v1/node/NODE/allocations", "", 200},
	{"nodes", "GET", "/v1/node/NODE/history?allocations=true", "", 200},
	{"nodes", "GET", "/v1/fleet/status", "", 200},
	{"nodes", "PUT", "/v1/node/NODE/drain", `{"DrainSpec": {}}`, 403},
	{"north", "GET", "/v1/node/SOUTH", "", 404},
	{"op", "PUT", "/v1/join/tokens", `{"Role": "hub"}`, 403}, // a hub may do everything
	{"op", "GET", "/v1/operator/snapshot", "", 403},
	{"nothing", "PUT", "/v1/search?namespace=*", `{"Prefix": "", "Context": "all"}`, 200},
	{"", "GET", "/v1/namespaces", "", 403},
	{"guessed", "GET", "/v1/event/stream?topic=*", "", 403},
	// 81 to 90: variables.
	{"red", "GET", "/v1/vars?namespace=*", "", 200},
	{"red", "GET", "/v1/vars?namespace=*&prefix=team/", "", 200},
	{"red", "GET", "/v1/var/team/BLUE?namespace=blue", "", 403},
	{"red", "GET", "/v1/var/team/BLUE?namespace=*", "", 403},
	{"lister", "GET", "/v1/var/team/own?namespace=red", "", 403}, // a namespace's capabilities are not those of its variables
	{"red", "PUT", "/v1/var/team/BLUE?namespace=blue", `{"Items": {"k": "v"}}`, 403},
	{"red", "PUT", "/v1/var/team/own", `{"Namespace": "blue", "Items": {"k": "v"}}`, 403}, // the body names another namespace
	{"red", "PUT", "/v1/var/team/own?namespace=red", `{"Namespace": "blue", "Items": {"k": "v"}}`, 400},
	{"red", "DELETE", "/v1/var/team/BLUE?namespace=blue", "", 403},
	{"red", "GET", "/v1/event/stream?topic=Variable&namespace=blue&index=ENTRY", "", 200},
	// 91 to 94: volumes and nodes.
	{"red", "PUT", "/v1/volume/host/create", `{"Volume": {"Name": "v", "Namespace": "red", "NodePool": "reserved"}}`, 403},
	{"red", "PUT", "/v1/volume/host/create?namespace=red", `{"Volume": {"Name": "v", "Namespace": "blue"}}`, 400}, // it names two
	{"red", "PUT", "/v1/volume/host/create", `{"Volume": {"Name": "v", "Namespace": "blue"}}`, 403},
	{"red", "PUT", "/v1/volume/host/create", `{"Volume": {"ID": "VOLUME", "Name": "BLUEvolume", "Namespace": "red"}}`, 404}, // blue's
	// 95 to 108: tokens, policies and what belongs to the cluster.
	{"red", "PUT", "/v1/acl/policy/red", `{"Name": "red", "Rules": "namespace \"*\" { policy = \"write\" }"}`, 403},
	{"red", "DELETE", "/v1/acl/policy/reader", "", 403},
	{"red", "GET", "/v1/acl/policy/reader", "", 403},
	{"red", "PUT", "/v1/acl/token", `{"Name": "mine", "Type": "management"}`, 403},
	{"red", "GET", "/v1/acl/tokens", "", 403},
	{"red", "PUT", "/v1/acl/role", `{"Name": "mine", "Policies": [{"Name": "reader"}]}`, 403},
	{"red", "PUT", "/v1/acl/bootstrap", "", 409}, // it was done
	{"red", "PUT", "/v1/acl/token/onetime/exchange", `{"OneTimeSecretID": "99999999-9999-4999-8999-999999999999"}`, 403},
	{"red", "PUT", "/v1/operator/keyring/rotate?full=true", "", 403},
	{"red", "GET", "/v1/operator/audit", "", 403},
	{"red", "PUT", "/v1/operator/snapshot", "x", 403},
	{"red", "PUT", "/v1/node/NODE/revoke", `{"Reason": "mine"}`, 403},
	{"red", "PUT", "/v1/namespace/blue", `{"Name": "blue"}`, 403},
	{"red", "PUT", "/v1/validate/job", strings.Replace(jobText("red", "x", "default", ""), `"ID"`, `"ParentID": "JOB", "ID"`, 1), 200}, // its parent is not believed
	// 109 to 118: access control of others: the events of its objects, and the objects by their names.
	{"red", "GET", "/v1/event/stream?topic=ACLToken&index=ENTRY", "", 403},
	{"red", "GET", "/v1/event/stream?topic=ACLPolicy:BLUEpolicy&index=ENTRY", "", 403},
	{"red", "GET", "/v1/event/stream?topic=ACLRole&namespace=*&index=ENTRY", "", 403},
	{"red", "GET", "/v1/event/stream?topic=ACLAuthMethod&topic=Job&namespace=red&index=ENTRY", "", 403},
	{"op", "GET", "/v1/event/stream?topic=ACLBindingRule&index=ENTRY", "", 403},
	{"op", "GET", "/v1/event/stream?topic=*&index=ENTRY", "", 200},
	{"red", "GET", "/v1/acl/policies", "", 200},
	{"red", "GET", "/v1/acl/role/name/BLUErole", "", 403},
	{"red", "GET", "/v1/acl/token/BLUEtoken", "", 403},
	{"red", "GET", "/v1/acl/why?accessor=BLUEtoken&kind=namespace&name=blue&capability=read-job", "", 403},
	// 119 to 127: node meta: a tenant cannot read it without node:read, and no request changes it.
	{"red", "GET", "/v1/node/SOUTH", "", 404},
	{"red", "GET", "/v1/nodes?os=true&resources=true", "", 403},
	{"red", "GET", `/v1/nodes?filter="owner"+in+Meta`, "", 403},
	{"red", "GET", "/v1/node/pool/default/nodes?os=true", "", 404},
	{"red", "GET", "/v1/event/stream?topic=Node&index=ENTRY", "", 403},
	{"north", "GET", "/v1/event/stream?topic=Node&index=ENTRY", "", 200},
	{"red", "GET", "/v1/client/metadata?node_id=SOUTH", "", 404}, // no such endpoint: the meta of a node is in its agent's configuration
	{"red", "PUT", "/v1/client/metadata?node_id=SOUTH", `{"Meta": {"owner": "red"}}`, 404},
	{"nodes", "PUT", "/v1/client/metadata", `{"NodeID": "SOUTH", "Meta": {"owner": "red"}}`, 404},
	// 128 to 137: dispatches: payloads and meta of others, and those that name another namespace.
	{"red", "GET", "/v1/job/CHILD?namespace=blue", "", 403},
	{"red", "GET", "/v1/job/CHILD?namespace=*", "", 404},
	{"lister", "GET", "/v1/job/redbatch?namespace=red", "", 403}, // its payloads neither: it lists jobs alone
	{"red", "PUT", "/v1/job/BLUEbatch/dispatch?namespace=*", `{"Payload": "eA=="}`, 404},
	{"red", "PUT", "/v1/job/BLUEbatch/dispatch?namespace=red", `{"Payload": "eA=="}`, 404},
	{"red", "PUT", "/v1/job/redbatch/dispatch?namespace=red", `{"Payload": "eA==", "Namespace": "blue"}`, 400},
	{"red", "PUT", "/v1/job/redbatch/dispatch?namespace=red", `{"Payload": "eA==", "Meta": {"NOMAD_NAMESPACE": "blue"}}`, 400}, // not declared
	{"red", "PUT", "/v1/job/redbatch/dispatch?namespace=red", `{"Payload": "eA==", "Meta": {"namespace": "blue"}}`, 500},       // a value like any other: frozen
	{"red", "PUT", "/v1/job/redbatch/dispatch?namespace=red", `{"JobID": "BLUEbatch", "Payload": "eA=="}`, 400},                // the body names another job than the path
	{"red", "PUT", "/v1/job/redbatch/dispatch?namespace=red&idempotency_token=BLUE", `{"Payload": "eA=="}`, 500},               // blue's dispatch had it: frozen
	// 138 to 142: other regions, which a hub forwards no request to, and the ways of the hubs among themselves.
	{"red", "GET", "/v1/job/JOB?namespace=blue&region=other", "", 400},
	{"red", "PUT", "/v1/jobs?region=other", jobText("blue", "JOB", "default", ""), 400},
	{"red", "PUT", "/v1/job/JOB/scale?namespace=blue", `{"Target": {"Group": "site"}, "Count": 0, "Region": "other"}`, 403},
	{"red", "PUT", "/v1/operator/raft/transfer-leadership?id=hub1", "", 403},
	{"red", "DELETE", "/v1/operator/raft/peer?id=hub1", "", 403},
}
