package api

// What is tested by itself.
var (
	ExecFrames        = execFrames
	CloseText         = closeText
	RefuseUnknownKeys = refuseUnknownKeys
	IsIgnoredKey      = isIgnored
	WhyFixed          = whyFixed
)
