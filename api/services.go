package api

// ServiceList are the services of one namespace.
type ServiceList struct {
	Namespace string
	Services  []ServiceStub
}

// ServiceStub is a service in a list: what all that offer it are tagged with.
type ServiceStub struct {
	ServiceName string
	Tags        []string
}
