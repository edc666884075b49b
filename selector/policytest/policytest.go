// Package policytest checks what the training phases rely on in every policy.
package policytest
