// Package kfaketest tests kafkaonce with kfake, a fake of Kafka, and has its example. It is a
// module of its own, so that no user of kafkaonce gets kfake into the module graph.
package kfaketest
