//go:build operators

package main

import (
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func init() {
	kinds = append(kinds, gatewayv1.Install, monitoringv1.AddToScheme)
}
