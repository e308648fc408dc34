// Manifestcheck reads Kubernetes manifests from standard input and decodes each as the API server would under strict
// field validation: an unknown kind, an unknown or repeated field or a value of the wrong type is an error.
//
// It prints "kind/name" for each object that is valid, complaints on standard error, and ends with 1 when there is any.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// The kinds of Kubernetes itself; operators.go adds those of others.
var kinds = []func(*runtime.Scheme) error{
	appsv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme,
	policyv1.AddToScheme, rbacv1.AddToScheme,
}

func main() {
	scheme := runtime.NewScheme()
	for _, add := range kinds {
		if err := add(scheme); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	count, failed := 0, false
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		count++
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			fmt.Fprintf(os.Stderr, "document %d: %v\n", count, err)
			failed = true
			continue
		}
		accessor, err := meta.Accessor(object)
		if err != nil || accessor.GetName() == "" {
			fmt.Fprintf(os.Stderr, "document %d: a %s without a name\n", count, kind.Kind)
			failed = true
			continue
		}
		fmt.Printf("%s/%s\n", kind.Kind, accessor.GetName())
	}
	if failed {
		os.Exit(1)
	}
}
