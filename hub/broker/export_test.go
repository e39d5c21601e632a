package broker

// DequeueCall is how long a worker on another hub listens for an answer.
const DequeueCall = dequeueCall

// DequeueForCall is what a worker on another hub calls.
var DequeueForCall = (*Broker).dequeueForCall
