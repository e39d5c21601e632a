package api

// ServiceList has the services of one namespace.
type ServiceList struct {
	Namespace string
	Services  []ServiceStub
}

// ServiceStub is a service in a list, with the tags of all its registrations.
type ServiceStub struct {
	ServiceName string
	Tags        []string
}
